"""What is said and kept of attempts, and when a run is over."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..catalogue.entry import Finding
from ..core.errors import LaunchError
from ..diagnosis.attempt import Failed, Interrupted, Outcome
from ..diagnosis.user_lines import spots_of
from ..nodes.messages import RunEnded
from ..system import run_directory, terminal
from . import explain, pod_status


def summary(
    outcomes: Sequence[Outcome], findings: Mapping[int, Finding], run: Path, code: int
) -> None:
    """All attempts, each in a line, and where the evidence is."""
    rows = [
        (f"attempt {outcome.attempt.number + 1}", explain.outcome_text(outcome, findings))
        for outcome in outcomes
    ]
    lines = [f"{label}: {text}" for label, text in rows]
    say = terminal.say if code or len(outcomes) > 1 else terminal.tell
    say(*lines, f"exit code {code}; logs and records: {run}")


def last_words(outcome: Outcome, findings: Mapping[int, Finding]) -> None:
    """The traceback of the rank that failed first, last and whole; or its last output."""
    if not isinstance(outcome, Failed):
        return
    record = findings[outcome.attempt.number].record
    if record.traceback and not record.exception.endswith("SystemExit"):
        terminal.verbatim(record.traceback)
    elif record.log_tail and record.rank is not None:
        terminal.say(f"the last output of rank {record.rank}:")
        terminal.verbatim("\n".join(record.log_tail[-20:]))


def farewell(code: int, outcome: Outcome, findings: Mapping[int, Finding]) -> RunEnded:
    """What the other nodes are told at the end, the last attempt's outcome.

    Args:
        code: the exit code.
        outcome: how the last attempt ended.
        findings: the root cause of each attempt that failed, by its number.
    """
    line = explain.outcome_text(outcome, findings)
    match outcome:
        case Failed(attempt=attempt):
            root = findings[attempt.number]
            own = spots_of(root, attempt.plan.request)
            return RunEnded(code, line, pod_status.failure_line(code, root, own))
        case Interrupted(signal=number):
            return RunEnded(code, line, pod_status.stop_line(number))
        case _:
            return RunEnded(code, line)


def leave(end: RunEnded) -> None:
    """Where this launcher is a pod's, leaves the diagnosis for its status."""
    if end.code:
        text = end.diagnosis or pod_status.end_line(end.code, end.line)
        pod_status.write(text, os.environ)


def keep(path: Path, content: object) -> None:
    """Writes to the run directory; a disk that fills up on the way doesn't end the training."""
    try:
        run_directory.write(path, content)
    except LaunchError as error:
        terminal.say(f"{error.problem}; the run goes on")
