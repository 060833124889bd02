"""Recognizing lines of binary data."""

from __future__ import annotations

import random

import pytest
from safe_launch.core.control_sequences import is_garbage


@pytest.mark.parametrize(
    "line",
    [
        "",
        "step 1 loss 2.0",
        "\x1b[31mRuntimeError\x1b[0m: \x1b[1mno\x1b[0m",
        "\tindented: Größe, 損失, потеря",
        " 10%|\u2588\u258d       | 10/100 [00:01<00:09, 9.99it/s]",
        "RuntimeError: can't open the file caf\ufffd.bin",
        "错误: 显存不足".encode("gbk").decode("utf-8", "replace"),
    ],
)
def test_text(line: str) -> None:
    """Text in any language with colours, progress bars and a stray byte isn't binary."""
    assert not is_garbage(line)


@pytest.mark.parametrize("seed", range(20))
def test_binary_data(seed: int) -> None:
    """Random bytes, machine code, numbers and compressed data are binary."""
    data = random.Random(seed).randbytes(200)
    assert is_garbage(data.decode("utf-8", "replace"))


def test_numbers_in_binary() -> None:
    """Files of `numpy.save` or torch have many zero bytes."""
    assert is_garbage("\x00\x00\x00A\x00\x00\x00B\x01\x00\x00\x00")
