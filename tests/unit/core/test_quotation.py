"""Quotations: long ones are shortened, and lines of binary data are recognized."""

from __future__ import annotations

import random

import pytest
from safe_launch.core.quotation import is_garbage, shortened, with_short_paths


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ten letter", "ten letter"),
        ("seed 42 of", "seed 42 of"),
        ("seed 42 in run_20261126", "seed 42 in…"),
        ("seed 42 is no seed", "seed 42 is…"),
        ("/data/run_20261126140359", "/data/run_…"),
        ("a /data/run_20261126140359", "a /data/ru…"),
    ],
)
def test_it_ends_after_a_word_and_says_that_more_follows(text: str, expected: str) -> None:
    """A word is cut only if it fills half of the width."""
    assert shortened(text, 10) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in '/data/a.bin', line 3", "in '/data/a.bin', line 3"),
        (
            f"open '/a/{'deep/' * 12}weights.bin'",
            "open '/a/deep/deep/deep/deep/deep/deep/…/weights.bin'",
        ),
        (
            f"C:\\w\\{'d/' * 30}{'ab' * 30}.lock: no",
            "C:\\w\\d/d/d/d/…/abababababababab…bababababab.lock: no",
        ),
        (f"https://hub/{'x/' * 30}y.json", f"https://hub/{'x/' * 16}…/y.json"),
    ],
)
def test_a_long_path_keeps_its_name(text: str, expected: str) -> None:
    """The first folders and the file's name remain."""
    assert with_short_paths(text) == expected


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
