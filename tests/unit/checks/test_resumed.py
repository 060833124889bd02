"""Whether a resumed training continues the one that saved."""

from __future__ import annotations

from dataclasses import replace

import pytest
from safe_launch.checks.resumed import Noted, Start, judged

FIRST, THEN = Start("a", (0.1, 0.2)), Start("d", (0.05, 0.04), has_state=True)
SAVED = Noted("/last.pt", "train.py:9", FIRST, THEN, 0.06, has_state=True)
RESUMED = Noted("/last.pt", "train.py:3", THEN)


@pytest.mark.parametrize(
    ("saved", "first", "words"),
    [
        (SAVED, replace(THEN, has_state=False), "the optimizer starts over"),
        (SAVED, replace(THEN, batch="a"), "the data starts over"),
        (SAVED, replace(THEN, rates=(0.1, 0.2)), "0.2 in the second step"),
        (replace(SAVED, then=None), replace(THEN, rates=(0.1, 0.2)), "instead of 0.06"),
    ],
)
def test_begins_anew(saved: Noted, first: Start, words: str) -> None:
    """Each state that starts over is reported for rank 0."""
    (found,) = judged(saved, replace(RESUMED, first=first))
    assert words in found.sentence
    assert (found.ranks, found.certain) == ((0,), False)


@pytest.mark.parametrize(
    ("saved", "first"),
    [
        (SAVED, THEN),
        (replace(SAVED, has_state=False), replace(THEN, has_state=False)),
        (replace(SAVED, then=None), replace(THEN, batch="a")),  # the epoch may have ended
        (replace(SAVED, first=replace(FIRST, batch="d")), THEN),  # every epoch has the same order
        (SAVED, replace(THEN, batch="", rates=())),
        (replace(SAVED, where="first.py:9"), FIRST),  # another script's start
        (SAVED, replace(THEN, batch="x", rates=(1.0, 2.0))),  # other rates were requested
        (replace(SAVED, first=replace(FIRST, rates=THEN.rates)), THEN),  # a constant rate
    ],
)
def test_goes_on(saved: Noted, first: Start) -> None:
    """A true continuation, unknown values and another training are no finding."""
    assert not list(judged(saved, replace(RESUMED, first=first)))
