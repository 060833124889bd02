"""Combining the ends of all nodes' workers into an attempt's outcome."""

from __future__ import annotations

from pathlib import Path

import pytest
from safe_launch.checkpoints.checkpoint import Saves
from safe_launch.diagnosis.attempt import (
    Attempt,
    Failed,
    Interrupted,
    Outcome,
    Seen,
    Succeeded,
    Superseded,
    outcome_of,
)
from safe_launch.evidence.failure_record import FailureRecord
from safe_launch.nodes.messages import Ended
from safe_launch.nodes.peers import AttemptEnd
from safe_launch.planning.search import as_asked
from support.worlds import HARDWARE, REQUEST, ZERO2, world

ATTEMPT = Attempt(0, as_asked(REQUEST, world(ZERO2), HARDWARE), Path())
FINE = Ended(True)
EARLY, LATE = FailureRecord(1, 1.0), FailureRecord(0, 2.0)
SEEN = {"frozen_parameters": True}


@pytest.mark.parametrize(
    ("part", "outcome"),
    [
        (AttemptEnd({0: FINE, 1: Ended(True, remarks=("a",))}), Succeeded(ATTEMPT, ("a",))),
        # Finished comes before stopped: the signal came too late.
        (AttemptEnd({0: Ended(True, signal=15)}), Succeeded(ATTEMPT)),
        (AttemptEnd({0: FINE, 1: Ended(False, (EARLY,), signal=15)}), Interrupted(ATTEMPT, 15)),
        (
            AttemptEnd({0: Ended(False)}, observed=SEEN, is_superseded=True),
            Superseded(ATTEMPT, Seen(SEEN)),
        ),
        # The earliest failure comes first, whichever node it was on.
        (
            AttemptEnd({0: Ended(False, (LATE,)), 1: Ended(False, (EARLY,))}),
            Failed(ATTEMPT, (EARLY, LATE)),
        ),
        # The node's last messages before contact was lost.
        (
            AttemptEnd({0: Ended(False)}, failing={1: (EARLY,)}, saves=Saves("out")),
            Failed(ATTEMPT, (EARLY,), Seen({}, None, Saves("out"))),
        ),
    ],
)
def test_the_order_of_judgement(part: AttemptEnd, outcome: Outcome) -> None:
    """Finished, stopped from outside, superseded, failed."""
    assert outcome_of(ATTEMPT, part) == outcome


def test_a_lost_node() -> None:
    """A lost node is a failure unless its workers had finished."""
    lost = {1: (3.0, "node 1 (beta) is lost")}
    outcome = outcome_of(ATTEMPT, AttemptEnd({0: Ended(False, (LATE,))}, lost=lost))
    assert isinstance(outcome, Failed)
    assert [(record.rank, record.message) for record in outcome.records] == [
        (0, ""),
        (None, "node 1 (beta) is lost"),
    ]
    assert outcome.lost == {1}
    assert outcome_of(ATTEMPT, AttemptEnd({0: FINE, 1: FINE}, lost=lost)) == Succeeded(ATTEMPT)


def test_a_lost_node_comes_before_what_was_seen() -> None:
    """The node takes precedence: it has to be replaced first."""
    lost = {1: (3.0, "node 1 (beta) is lost")}
    part = AttemptEnd({0: Ended(False)}, lost=lost, is_superseded=True)
    assert isinstance(outcome_of(ATTEMPT, part), Failed)
