"""Allowed transitions between an attempt's states."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from safe_launch.workers.attempt_state import STOPPING, TRANSITIONS, AttemptState, Progress
from support.tables import table

RUNNING, FINISHED = AttemptState.RUNNING, AttemptState.FINISHED
FAILED, INTERRUPTED = AttemptState.FAILED, AttemptState.INTERRUPTED


@table(("before", "after"), product(AttemptState, AttemptState))
def test_what_may_follow(before: AttemptState, after: AttemptState) -> None:
    """Transitions in the table succeed; others raise and change no state."""
    progress = Progress([before])
    if after in TRANSITIONS[before]:
        progress.enter(after)
        assert progress.state is after
    else:
        with pytest.raises(RuntimeError, match=f"that is {before} can't become {after}"):
            progress.enter(after)
        assert progress.state is before


@pytest.mark.parametrize(
    "states",
    [
        [RUNNING, FINISHED],
        [RUNNING, FINISHED, FAILED, INTERRUPTED],
        [RUNNING, AttemptState.SUPERSEDED, INTERRUPTED],
        [RUNNING, AttemptState.BROKEN, INTERRUPTED],
    ],
)
def test_courses_that_happen(states: list[AttemptState]) -> None:
    """A finished node stays finished, whatever happens on the others."""
    progress = Progress()
    for before, after in pairwise(states):
        assert progress.state is before
        progress.enter(after)
    assert progress.has_finished == (FINISHED in states)
    assert progress.is_stopping == (states[-1] in STOPPING)


def test_nothing_goes_back() -> None:
    """No course is endless: a signal ends every one."""
    assert not TRANSITIONS[INTERRUPTED]
    assert all(RUNNING not in following for following in TRANSITIONS.values())
