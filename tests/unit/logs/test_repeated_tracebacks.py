"""Repeated tracebacks are left out; everything else is read with its place."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO

import pytest
from safe_launch.logs import lines
from safe_launch.logs.lines import MOST_ALIKE, NEAR, without_repeats
from safe_launch.logs.searches import automaton

PLAIN = """\
PTraceback (most recent call last):
P  File "/home/ml/train.py", line 7, in step
P    return self.model(batch)
PRuntimeError: sample N: shape mismatch
"""
CHAINED = """\
PTraceback (most recent call last):
P  File "/home/ml/train.py", line 7, in step
PKeyError: 'N'
P
PDuring handling of the above exception, another exception occurred:
P
PTraceback (most recent call last):
P  File "/home/ml/train.py", line 9, in step
PValueError: batch N is empty
"""
MANY = 4_000


def log(form: str, prefix: str) -> list[str]:
    """Many tracebacks with a step after each, and another one in the middle."""
    text = ""
    for number in range(MANY):
        each = form.replace("P", prefix).replace("N", str(number))
        text += each.replace("12:00:00", f"12:{number // 60 % 60:02}:{number % 60:02}")
        if number == MANY // 2:
            text += PLAIN.replace("P", prefix).replace("mismatch", "disagreement")
        text += f"step {number} loss 0.5\n"
    return text.splitlines()


@pytest.mark.parametrize("form", [PLAIN, CHAINED])
@pytest.mark.parametrize("prefix", ["", "[rank3]: ", "[2026-01-01 12:00:00,123] worker 3: "])
def test_repeats_are_left_out(form: str, prefix: str) -> None:
    """Of each kind the first and those near the end are read; lines keep their numbers."""
    rows = log(form, prefix)
    text = "\n".join(rows).encode()
    search = automaton(["Error", "Traceback"])
    read = list(lines.interesting(BytesIO(text), lambda: search))
    assert all(rows[line.number - 1] == line.text for line in read)
    # Those near the end are a part of all, as the log is many times as long.
    found = sum("Traceback" in line.text for line in read)
    chained = form.count("Traceback")
    assert (
        MOST_ALIKE * chained < found < len(rows) * 2 * NEAR / len(text) + 2 * MOST_ALIKE * chained
    )
    assert [line.text for line in read if "disagreement" in line.text]


def test_ranks_are_told_apart() -> None:
    """A rank that fails once among another's repeats is read."""
    often, once = (PLAIN.replace("P", f"[rank{rank}]: ") for rank in (0, 1))
    rest = b"step 1\n" * NEAR
    text = (often * 100 + once + often * 100).encode() + rest
    parts = list(without_repeats([text[:1000], text[1000:]]))
    kept = b"".join(part for _, part in parts)
    assert kept.count(b"[rank0]: Traceback") == MOST_ALIKE
    assert kept.count(b"[rank1]: Traceback") == 1
    assert kept.count(b"\n") + sum(left for left, _ in parts) == text.count(b"\n")


@pytest.mark.parametrize(
    "text",
    [
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n',
        "Traceback (most recent call last):\nstep 5\n",
        "Traceback (most recent call last):\r\n",
        'Traceback (most recent call last):\n[rank1]:   File "a.py", line 1\nValueError: x\n',
    ],
    ids=["cut", "interrupted", "alone", "mixed"],
)
def test_other_forms_are_read_whole(text: str) -> None:
    """Cut, interrupted or mixed tracebacks stay as they are."""
    whole = text.encode() * 200 + b"step 1\n" * NEAR
    assert b"".join(part for _, part in without_repeats([whole])) == whole


@pytest.mark.parametrize("end", [b"", b"\r"], ids=["without", "returns"])
def test_a_line_without_end_is_not_held_back(end: bytes) -> None:
    """Of blocks without a line end at most two are kept in memory."""
    given = 0

    def blocks() -> Iterator[bytes]:
        nonlocal given
        for _ in range(20):
            given += 1
            yield b"a" * (1 << 20) + end

    got = 0
    for left, part in without_repeats(blocks()):
        got += len(part)
        assert left == 0
        assert given * ((1 << 20) + len(end)) - got <= 2 * ((1 << 20) + len(end))
    assert got == 20 * ((1 << 20) + len(end))
