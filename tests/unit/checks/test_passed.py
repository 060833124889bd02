"""What a transformers model's first passes are given, and the chats that are rendered for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from safe_launch.checks import passed
from safe_launch.checks.data import judgements
from safe_launch.checks.passed import Chats
from safe_launch.checks.rows import Row
from support.tables import table

ROW = Row(9, 9, 1, 1, -1, 1, 7, 6, 1, 0, 0, 0)
ROWS = [ROW] * 24
ANSWERS = [replace(ROW, counted=4)] * 24
MANY = [replace(ROW, last=word) for word in range(24)]


@table(
    ("shown", "words"),
    [
        ([[True, False, False, False], *[[False] * 4] * 2], ["the classifier reads padding"]),
        ([[False, True, False, False]] * 2 + [[False] * 4], ["texts end in several pad"]),
        ([[False, True, False, False]] + [[False] * 4] * 2, []),
        ([[False, False, True, True]] * 3, ["texts begin with several pad", "shifted positions"]),
        ([[True] * 4] * 2, []),
    ],
)
def test_padding(shown: list[list[bool]], words: list[str]) -> None:
    """The classifier's is certain in one batch; others must be in two."""
    found = [each.sentence for each in judgements(passed.FAULTS, shown) if each]
    assert len(found) == len(words)
    assert all(word in sentence for word, sentence in zip(words, found, strict=True))


@table(
    ("coefficient", "routers", "is_found"),
    [(0.02, 2, True), (0.0, 2, False), (0.02, 0, False)],  # frozen under an adapter
)
def test_experts(coefficient: float, routers: int, is_found: bool) -> None:
    """Their routers are trained, and the balancing loss is off."""
    assert (passed.unbalanced(coefficient, routers) is not None) == is_found


@table(
    ("labels", "is_found"),
    [
        ((80, 30, 0), True),
        ((80, 30, 2), False),
        ((80, 0, 0), False),
        ((80, 80, 0), False),
        ((8, 3, 0), False),
    ],
)
def test_numbers(labels: tuple[int, int, int], is_found: bool) -> None:
    """Both classes must be among the labels, and nothing else."""
    assert (passed.regression(*labels) is not None) == is_found


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
    assert (passed.prompted(noted, rows) is not None) == is_found


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
    found = passed.shortened(noted, rows)
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
    found = passed.unknown_markers(rows, lambda marker: marker == "<|known|>")
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
    assert (passed.by_chance(losses, tokens) is not None) == is_found
