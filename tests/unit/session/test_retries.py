"""Restarts of the same plan under --max-restarts."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from safe_launch.catalogue.entry import Finding, Kind, Role
from safe_launch.core.errors import Refused
from safe_launch.evidence.failure_record import FailureRecord, Frame
from safe_launch.session.decision import next_restart
from support.worlds import CATALOGUE


def failure(message: str, step: int | None = 3, kind: Kind | None = None, line: int = 7) -> Finding:
    """A failure of a known class, or an unknown one."""
    entry = next((entry for entry in CATALOGUE if entry.kind is kind), None)
    frame = Frame("train.py", line, "main", "step()")
    record = FailureRecord(0, 0.0, "RuntimeError", message, frames=(frame,), step=step)
    return Finding(record, Role.INITIATING, entry)


@pytest.mark.parametrize(
    ("limit", "used", "roots", "expected"),
    [
        (2, 0, [failure("a")], 1),
        (2, 1, [failure("a"), failure("b")], 2),
        (2, 2, [failure("a"), failure("b"), failure("c")], "no restart is left"),
        (5, 1, [failure("a"), failure("a")], "it has ended in the same way twice"),
        (5, 2, [failure("a"), failure("b"), failure("a")], "it has ended in the same way twice"),
        (5, 1, [failure("a"), failure("a", step=4)], 2),
        (5, 1, [failure("a"), failure("a", line=8)], 2),
        (5, 0, [failure("a", kind=Kind.HARDWARE)], 1),
    ],
)
def test_what_is_restarted(
    limit: int, used: int, roots: list[Finding], expected: int | str
) -> None:
    """Up to the limit, but not after the same end twice."""
    wanted = Refused(expected) if isinstance(expected, str) else expected
    assert next_restart(limit, used, roots) == wanted


def test_what_the_user_must_mend_is_not_restarted() -> None:
    """It would fail again."""
    root = failure("a", kind=Kind.USER)
    assert root.entry is not None
    expected = Refused(f"the same input fails with {root.entry.id} every time")
    assert next_restart(5, 0, [root]) == expected


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_was_killed_from_outside_is_restarted(number: signal.Signals) -> None:
    """Once: its exit code allows the same job to start again."""
    entry = next(entry for entry in CATALOGUE if entry.id == "worker-killed")
    assert entry.kind is Kind.USER
    killed = FailureRecord(0, 0.0, exit_code=128 + number, signal=number)
    root = Finding(killed, Role.INITIATING, entry)
    assert next_restart(5, 0, [root]) == 1
    assert next_restart(5, 1, [root, root]) == Refused("it has ended in the same way twice")
    crashed = replace(killed, signal=signal.SIGSEGV)
    assert isinstance(next_restart(5, 0, [replace(root, record=crashed)]), Refused)
