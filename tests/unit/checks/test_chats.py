"""Chats that are rendered, and losses of loaded models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from safe_launch.checks import chats
from safe_launch.checks.chats import Chats
from safe_launch.checks.rows import Row
from support.tables import table

ROW = Row(9, 9, 1, 1, -1, 1, 7, 6, 1, 0, 0, 0)
ROWS = [ROW] * 24
ANSWERS = [replace(ROW, counted=4)] * 24
MANY = [replace(ROW, last=word) for word in range(24)]


@table(
    ("noted", "rows", "is_found"),
    [
        (Chats(answered=20, asking=20), ROWS, True),
        (Chats(answered=40, asking=20), ROWS, False),  # prompts for an evaluation
        (Chats(answered=4, asking=4), ROWS, False),
        (Chats(answered=20, asking=20), MANY, False),
        (Chats(answered=20, asking=20), [replace(ROW, final=0)] * 24, False),
        (Chats(), ROWS, False),
    ],
)
def test_prompts(noted: Chats, rows: Sequence[Row], is_found: bool) -> None:
    """Nearly all chats have one behind their answer, and it counts."""
    assert (chats.prompted(noted, rows) is not None) == is_found


@table(
    ("noted", "rows", "words"),
    [
        (Chats(several=20, dropped=20), ROWS, "parts of earlier answers"),
        (Chats(several=20, dropped=20), ANSWERS, ""),  # the last answer alone
        (Chats(several=20, dropped=3), ROWS, ""),
        (Chats(reasoned=20, thoughtless=20), ROWS, "the thoughts (reasoning_content"),
        (Chats(reasoned=20, thoughtless=19), ROWS, ""),
        (Chats(), ROWS, ""),
    ],
)
def test_parts(noted: Chats, rows: Sequence[Row], words: str) -> None:
    """Templates that drop what is trained."""
    found = chats.shortened(noted, rows)
    assert (found is not None) == bool(words)
    assert found is None or words in found.sentence


@table(
    ("rows", "is_found"),
    [
        ([["<|im_end|>"]] * 8, True),
        ([["<|im_end|>", "<|known|>"]] * 8, True),
        ([["<|known|>"]] * 8, False),
        ([["<|im_end|>"]] * 4 + [[]] * 4, False),
        ([[]] * 8, False),
        ([["<|im_end|>"]] * 4, False),
    ],
)
def test_markers(rows: list[list[str]], is_found: bool) -> None:
    """Nearly all texts have one that isn't a token."""
    found = chats.unknown_markers(rows, lambda marker: marker == "<|known|>")
    assert (found is not None) == is_found


@table(
    ("losses", "tokens", "is_found"),
    [
        ([12.5, 12.2, 12.9], 50257, True),
        ([10.8, 10.9, 10.8], 50257, False),  # new weights that were saved and loaded
        ([12.5, 12.2, 3.0], 50257, False),
        ([12.5, 12.2], 50257, False),
        ([float("nan")] * 3, 50257, False),
    ],
)
def test_losses(losses: list[float], tokens: int, is_found: bool) -> None:
    """All of three must be worse than a guess."""
    assert (chats.by_chance(losses, tokens) is not None) == is_found
