"""The judgement on an attempt: its verdict and failures."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..catalogue.entry import Finding, Role
from ..evidence.failure_record import death_text
from .attempts import Evidence
from .failures import Failure
from .last_activity import Activity
from .progress_signs import Written


class Verdict(StrEnum):
    """The verdict on an attempt."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True)
class BreakOff:
    """The end of logs without a failure or an end of training.

    Attributes:
        error: the last exception without a traceback, which may be the cause.
        last_lines: the last line of each file.
        cut: file and first line of an incomplete traceback.
        goes_on: whether the training continued after an exception.
        activity: what the job was doing at the end, before or between training steps.
    """

    error: Evidence | None
    last_lines: tuple[Written, ...]
    cut: tuple[str, int] | None
    goes_on: bool
    activity: Activity | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement on one attempt.

    Attributes:
        attempt: its number, from 1.
        verdict: the verdict.
        failures: all failures, the root cause first.
        break_off: the end of incomplete logs.
        complaints: without an exception, the last lines that may name the cause.
        suspect: an earlier error that may be the cause, if the root cause is only a consequence or
            a stop, or has no message.
    """

    attempt: int
    verdict: Verdict
    failures: tuple[Failure, ...] = ()
    break_off: BreakOff | None = None
    complaints: tuple[Written, ...] = ()
    suspect: Finding | None = None

    @property
    def root(self) -> Failure | None:
        """The root cause."""
        return self.failures[0] if self.failures else None

    @property
    def others(self) -> tuple[Failure, ...]:
        """Further causes independent of the root cause."""
        if self.root is None or self.root.finding.role is not Role.INITIATING:
            return ()
        seen = {name_of(self.root)}
        streams = {_stream(self.root)}
        others: list[Failure] = []
        for failure in self.failures[1:]:
            if (
                failure.finding.role is Role.INITIATING
                and (failure.finding.record.exception or failure.finding.entry)
                and name_of(failure) not in seen
                and _stream(failure) not in streams
            ):
                others.append(failure)
            seen.add(name_of(failure))
            streams.add(_stream(failure))
        return tuple(others)


def name_of(failure: Failure) -> str:
    """The name of a finding: its entry, else its exception, else the worker's end."""
    return failure.finding.name or death_text(failure.finding.record)


def _stream(failure: Failure) -> tuple[str, int | None]:
    return failure.evidence.file, failure.finding.record.rank
