"""What is said when a run is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from . import explain, terminal
from .attempt import Failed, Outcome
from .failure import Finding


def summary(
    outcomes: Sequence[Outcome], findings: Mapping[int, Finding], run: Path, code: int
) -> None:
    """All attempts, each in a line, and where the evidence is."""
    rows = [
        (f"attempt {outcome.attempt.number + 1}", explain.outcome_text(outcome, findings))
        for outcome in outcomes
    ]
    lines = [f"{label}: {text}" for label, text in rows]
    terminal.say(*lines, f"exit code {code}; logs and records: {run}")


def last_words(outcome: Outcome, findings: Mapping[int, Finding]) -> None:
    """The traceback of the rank that failed first, last and whole; or its last output."""
    if not isinstance(outcome, Failed):
        return
    record = findings[outcome.attempt.number].record
    if record.traceback and not record.exception.endswith("SystemExit"):
        terminal.verbatim(record.traceback)
    elif record.log_tail:
        terminal.say(f"the last output of rank {record.rank}:")
        terminal.verbatim("\n".join(record.log_tail[-20:]))
