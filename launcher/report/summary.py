"""What is printed, written and sent when a run is over."""

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
from . import explain_failure, pod_status


def show_attempts(
    outcomes: Sequence[Outcome], findings: Mapping[int, Finding], run: Path, code: int
) -> None:
    """Prints a line for each attempt, and the path of the records."""
    lines = [
        f"attempt {outcome.attempt.number + 1}: {explain_failure.outcome_text(outcome, findings)}"
        for outcome in outcomes
    ]
    say = terminal.say if code or len(outcomes) > 1 else terminal.tell
    say(*lines, f"exit code {code}; logs and records: {run}")


def show_root_traceback(outcome: Outcome, findings: Mapping[int, Finding]) -> None:
    """Prints the full traceback of the rank that failed first, or its last output."""
    if not isinstance(outcome, Failed):
        return
    record = findings[outcome.attempt.number].record
    if record.traceback and not record.exception.endswith("SystemExit"):
        terminal.verbatim(record.traceback)
    elif record.log_tail and record.rank is not None:
        terminal.say(f"the last output of rank {record.rank}:")
        terminal.verbatim("\n".join(record.log_tail[-20:]))


def farewell(code: int, outcome: Outcome, findings: Mapping[int, Finding]) -> RunEnded:
    """The message that tells the other nodes of the end.

    Args:
        code: the exit code.
        outcome: the outcome that is reported as the run's.
        findings: the root cause of each failed attempt, by its number.
    """
    line = explain_failure.outcome_text(outcome, findings)
    match outcome:
        case Failed(attempt=attempt):
            root = findings[attempt.number]
            spots = spots_of(root, attempt.plan.request)
            return RunEnded(code, line, pod_status.failure_line(code, root, spots))
        case Interrupted(signal=number):
            return RunEnded(code, line, pod_status.stop_line(number))
        case _:
            return RunEnded(code, line)


def write_pod_status(end: RunEnded) -> None:
    """Writes the diagnosis for the pod's status, if this launcher runs in a pod."""
    if end.code:
        text = end.diagnosis or pod_status.end_line(end.code, end.line)
        pod_status.write(text, os.environ)


def write_or_warn(path: Path, content: object) -> None:
    """Writes to the run directory; prints an error, e.g. of a full disk, and continues."""
    try:
        run_directory.write(path, content)
    except LaunchError as error:
        terminal.say(f"{error.problem}; the run continues")
