"""Output, records and messages at the end of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ..catalogue.entry import Finding
from ..core.errors import LaunchError
from ..core.output_routing import ERR, SHARED_CONSOLE
from ..diagnosis.attempt import Failed, Interrupted, Outcome, Succeeded
from ..diagnosis.root_cause import spots_of
from ..nodes.messages import RunEnded
from ..system import run_directory, terminal
from . import explain_failure, lasting, pod_status
from .throughput import line_of, throughput_of


def attempt_line(outcome: Outcome, findings: Mapping[int, Finding]) -> str:
    """A line on how an attempt ended."""
    number = outcome.attempt.number + 1
    return f"attempt {number}: {explain_failure.outcome_text(outcome, findings)}"


def show_end(
    outcomes: Sequence[Outcome], findings: Mapping[int, Finding], run: Path, code: int
) -> None:
    """Prints the records' path, the throughput, and the last attempt's end unless it failed."""
    is_reported = isinstance(outcomes[-1], Failed)
    lines = [] if is_reported else [attempt_line(outcomes[-1], findings)]
    speed = throughput_of(outcomes)
    lines += [] if speed is None else [line_of(speed)]
    if isinstance(outcomes[-1], Succeeded) and not outcomes[-1].remarks:
        lines = ["; ".join(lines)]
    say = terminal.say if code or len(outcomes) > 1 else terminal.tell
    say(*lines, f"exit code {code}; logs and records: {run}")


def document(outcomes: Sequence[Outcome], code: int) -> dict[str, object]:
    """The run's end, for the run directory."""
    speed = throughput_of(outcomes)
    trained = {} if speed is None else {"throughput": speed}
    last = outcomes[-1]
    edits = lasting.edits(last.attempt.plan) if isinstance(last, Succeeded) else []
    fixes = {"lasting": msgspec.to_builtins(edits)} if edits else {}
    return {"exit_code": code, "attempts": len(outcomes), **trained, **fixes}


def show_hidden_output(outcome: Outcome, findings: Mapping[int, Finding]) -> None:
    """Prints the full traceback of the rank that failed first, or its last output, if hidden.

    A worker prints its traceback, unless it is stopped before. Hidden are also ranks that this
    console doesn't show, and those of other nodes whose output goes elsewhere.
    """
    if not isinstance(outcome, Failed):
        return
    record = findings[outcome.attempt.number].record
    streams = outcome.attempt.plan.request.worker_options.streams
    is_here = not record.host or SHARED_CONSOLE in os.environ
    # This is node 0, whose ranks come first: here a local rank is the rank.
    local = record.rank if record.local_rank is None else record.local_rank
    end = record.traceback.rstrip().rpartition("\n")[2]
    is_printed = not end or any(line.endswith(end) for line in record.log_tail)
    if is_printed and is_here and streams.is_shown(local or 0, ERR):
        return
    if record.traceback and not record.exception.endswith("SystemExit"):
        terminal.verbatim(record.traceback)
    elif record.log_tail and record.rank is not None:
        terminal.say(f"the last output of rank {record.rank}:")
        terminal.verbatim("\n".join(record.log_tail[-20:]))


def farewell(code: int, outcome: Outcome, findings: Mapping[int, Finding]) -> RunEnded:
    """The message that reports the end to the other nodes."""
    line = explain_failure.outcome_text(outcome, findings)
    match outcome:
        case Failed(attempt=attempt):
            root = findings[attempt.number]
            spots = spots_of(root, attempt.plan.request)
            diagnosis = pod_status.failure_line(code, root, attempt.plan.workload, spots)
            return RunEnded(code, line, diagnosis)
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
        terminal.say(f"{error.problem}; the training doesn't depend on it")
