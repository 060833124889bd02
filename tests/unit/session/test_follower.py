"""How the other nodes' launchers handle node 0's orders and their own workers, as values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from safe_launch.checkpoints.checkpoint import Resume, Saves
from safe_launch.core.errors import ExitCode, Refused
from safe_launch.core.settings import Setting
from safe_launch.evidence.failure_record import FailureRecord
from safe_launch.nodes.joining import RunStarted
from safe_launch.nodes.messages import Ended, Order
from safe_launch.nodes.peers import AttemptEnd
from safe_launch.session.multi_node import (
    contradiction,
    exit_code_of,
    order_text,
    resume_variable,
)
from support.worlds import REQUEST

ORDER = Order(0, "run", 1, (2, 2), 29_400, {}, {}, {})
STARTED = RunStarted("run", 1, 2)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (ORDER, None),
        (structs.replace(ORDER, run_id="other"), "an attempt of run other, and this is run run"),
        (structs.replace(ORDER, rank=2, workers=(2, 2, 2)), "node 2 of 3, and this is node 1 of 2"),
        (structs.replace(ORDER, rank=0, workers=(2, 2, 2)), "node 0 of 3, and this is node 1 of 2"),
        (
            structs.replace(ORDER, workers=(2, 3)),
            "3 workers here, and this node announced 2",
        ),
        (structs.replace(ORDER, rank=0, workers=(2,)), None),  # the other nodes were lost
    ],
)
def test_what_can_be_an_order_to_this_node(order: Order, words: str | None) -> None:
    """It has this run and this node's number of workers."""
    found = contradiction(order, STARTED, REQUEST)
    assert found == (None if words is None else Refused(words))


def test_an_order_to_the_next_node() -> None:
    """The number of nodes may match, but the rank is another's."""
    welcome = structs.replace(STARTED, nodes=3)
    order = structs.replace(ORDER, rank=2, workers=(2, 2, 2))
    expected = Refused("node 2 of 3, and this is node 1 of 3")
    assert contradiction(order, welcome, REQUEST) == expected


def test_what_the_workers_resume_from(tmp_path: Path) -> None:
    """Only folders reported by this node's workers are allowed."""
    order = structs.replace(ORDER, resume=Resume(0, "checkpoint-4"))
    part = AttemptEnd({1: Ended(False)}, saves=(Saves(str(tmp_path)),))
    assert resume_variable(ORDER, []) == ""
    assert resume_variable(order, [part]) == f"0:{tmp_path / 'checkpoint-4'}"
    unknown = Refused("to resume from checkpoint-4, and no worker here has reported where it is")
    assert resume_variable(order, []) == unknown
    assert resume_variable(order, [replace(part, saves=(Saves(str(tmp_path), 1),))]) == unknown


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (Ended(True), 0),
        (Ended(False, signal=15), 143),
        (Ended(False, (FailureRecord(2, 1.0, exit_code=7),)), 7),
        (Ended(False, (FailureRecord(2, 1.0),)), 1),
        (Ended(False), ExitCode.RETRY_ELSEWHERE),  # stopped after another node's failure
    ],
)
def test_the_exit_code_of_this_nodes_own_workers(ended: Ended, code: int) -> None:
    """A local failure isn't a success, whatever node 0 reports; the last attempt counts."""
    assert exit_code_of([AttemptEnd({1: ended})]) == code
    assert exit_code_of([AttemptEnd({1: Ended(False)}), AttemptEnd({1: ended})]) == code


def test_no_attempt_here_is_no_success() -> None:
    """Node 0 ended the run before this node's workers started."""
    assert exit_code_of([]) == ExitCode.RETRY_ELSEWHERE


def test_a_further_attempt_in_a_line() -> None:
    """The line has node 0's corrections."""
    assert order_text(ORDER) == "node 0 relaunches with the same plan"
    order = structs.replace(ORDER, overrides={Setting.ZERO_STAGE: 1})
    assert order_text(order) == "node 0 relaunches with ZeRO stage 1"
