"""Rows of an embedding without gradients, on plain values."""

from __future__ import annotations

from safe_launch.checks import trained
from support.tables import table

ZEROED = dict.fromkeys(range(6), (True, True)) | {9: (False, True)}
STILL = dict.fromkeys(range(6), (True, False)) | {9: (False, True)}
MASKED = dict.fromkeys(range(6), (False, True)) | {9: (True, True)}


@table(
    ("steps", "is_told"),
    [
        ([ZEROED] * 3, True),
        ([ZEROED] * 2, False),
        ([STILL] * 3, False),  # they are put back
        ([MASKED] * 3, False),
        ([ZEROED, MASKED, ZEROED], False),  # words without a loss in one batch
        ([dict.fromkeys(range(6), (True, True))] * 3, False),  # no gradient at all
    ],
)
def test_rows_that_are_to_stay(steps: list[dict[int, tuple[bool, bool]]], is_told: bool) -> None:
    """They have no gradient, are in use, and move."""
    assert (trained.zeroed_rows("embedding.weight", steps) is not None) == is_told
