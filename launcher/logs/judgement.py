"""The judgement on an attempt: its failures without repetitions, and its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ..catalogue.entry import Finding, Role
from ..diagnosis.next_step.activities import Activity
from ..evidence.failure_record import death_text
from .attempts import Evidence
from .mere_warnings import Warned
from .progress_signs import Written

LAST_WORDS, WHAT = "terminate called", "what()"
"""C++'s message on an uncaught exception, and the prefix of the exception's text."""
FAULT = "Memory access fault by GPU"
"""ROCm's message when its runtime ends a process, possibly before the watchdog does."""
WHOLE = 2
"""Completeness of an exception with a traceback."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A finding and the evidence in the logs for it."""

    finding: Finding
    evidence: Evidence


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
        goes_on: whether the training continued after an exception.
        complaint: a line near the end that may report a failure.
        activity: what the job was doing at the end, before or between training steps.
    """

    error: Evidence | None
    last_lines: tuple[Written, ...]
    goes_on: bool
    complaint: Written | None = None
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
            a stop, or has no message; of a healthy run, an error after its end.
        warned: without a failure, the warning that the logs are about.
    """

    attempt: int
    verdict: Verdict
    failures: tuple[Failure, ...] = ()
    break_off: BreakOff | None = None
    complaints: tuple[Written, ...] = ()
    suspect: Finding | None = None
    warned: Warned | None = None

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


def without_aborts(failures: Sequence[Failure]) -> list[Failure]:
    """Drops native messages at the end of a process that another failure explains.

    NCCL's watchdog names the failure, then aborts (tests/logs/watchdog-then-bare-aborts.log); on
    AMD GPUs the waiting kernel may then access freed memory.
    """
    waited: dict[tuple[str, int | None], float] = {}
    for failure in failures:
        if failure.finding.role is Role.CASCADE:
            record = failure.finding.record
            waited.setdefault((failure.evidence.file, record.rank), record.at)

    def is_explained(failure: Failure) -> bool:
        record = failure.finding.record
        if record.message.startswith(LAST_WORDS) and failure.finding.entry is None:
            return any(_explains_abort(other, failure) for other in failures)
        since = waited.get((failure.evidence.file, record.rank), record.at)
        return record.message.startswith(FAULT) and record.rank is not None and since < record.at

    return [failure for failure in failures if not is_explained(failure)]


def without_copies(failures: Sequence[Failure]) -> list[Failure]:
    """Drops copies of a failure: known ones cut off on another rank, and merely logged ones.

    What is kept has the place of the first.

    (tests/logs/experts-out-of-order-head-cut.log, tests/logs/store-not-reachable-kubectl.log)
    """
    known = {
        _first_words(failure)
        for failure in failures
        if failure.finding.entry and not _is_guess(failure)
    }
    best: dict[tuple[str, bool], int] = {}
    for failure in failures:
        for raised in failure.finding.record.raised():
            key = raised.message.partition("\n")[0].strip(), failure.finding.entry is not None
            best[key] = max(best.get(key, 0), _wholeness(failure))

    def is_copy(failure: Failure) -> bool:
        words, is_known = _first_words(failure), failure.finding.entry is not None
        wholeness = _wholeness(failure)
        is_scrap = any(wholeness < best.get((words[1], other), 0) for other in {True, is_known})
        is_refuted = wholeness < WHOLE == best.get((words[1], False), 0) and _is_guess(failure)
        return is_scrap or is_refuted or (not is_known and words in known)

    kept: list[Failure] = []
    firsts: dict[tuple[str, str], float] = {}
    for failure in failures:
        if is_copy(failure):
            place = failure.evidence.file, _first_words(failure)[1]
            firsts.setdefault(place, failure.finding.record.at)
        else:
            kept.append(failure)
    return [_as_early(failure, firsts) for failure in kept]


def _as_early(failure: Failure, firsts: Mapping[tuple[str, str], float]) -> Failure:
    """A failure with the time of its first copy, by file and message."""
    record = failure.finding.record
    words = {raised.message.partition("\n")[0].strip() for raised in record.raised()}
    times = (firsts.get((failure.evidence.file, text), record.at) for text in words)
    record = replace(record, at=min((record.at, *times)))
    return replace(failure, finding=replace(failure.finding, record=record))


def _is_guess(failure: Failure) -> bool:
    """Whether an entry matches only because the raising frame isn't known."""
    record, entry = failure.finding.record, failure.finding.entry
    signatures = () if entry is None or record.frames else entry.signatures
    matching = [signature for signature in signatures if signature.matches(record)]
    return bool(matching) and all(signature.is_of_frame for signature in matching)


def _wholeness(failure: Failure) -> int:
    """Completeness of an exception: a traceback, a line logged as an error, a line."""
    return WHOLE if not failure.evidence.is_bare else int(failure.evidence.is_severe)


def _first_words(failure: Failure) -> tuple[str, str]:
    """An exception's type and first line, which identify a failure across ranks."""
    record = failure.finding.record
    return record.exception, record.message.partition("\n")[0].strip()


def _explains_abort(failure: Failure, abort: Failure) -> bool:
    """Whether a failure explains a C++ abort without a known message.

    Without `what()` there is no message, so any other failure of the rank explains it.
    """
    words, other = abort.finding.record, failure.finding.record
    is_same_rank = words.rank is None or other.rank in (None, words.rank)
    is_before = failure.evidence.file == abort.evidence.file and other.at < words.at
    if WHAT in words.message:
        is_same = bool(other.exception) and _first_words(failure)[1] in words.message
        is_known = failure.finding.entry is not None
        return failure is not abort and (is_known or is_same) and is_same_rank and is_before
    return not other.message.startswith(LAST_WORDS) and (is_same_rank or is_before)
