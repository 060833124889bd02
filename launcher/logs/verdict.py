"""Judges each attempt by its evidence: its failures, or its end."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, islice, takewhile

from ..catalogue.entry import Finding, KnownFailure, Role
from ..catalogue.prefilter import prefilter
from ..diagnosis.next_step.cut_off import CUT_OFF
from ..diagnosis.next_step.without_exception import STOPPED_EARLY
from ..diagnosis.root_cause import finding_of, urgency
from ..evidence.failure_record import FailureRecord
from .attempts import SURVIVED, WARNING, Reading
from .complaints import complaints_before, telling
from .cut_tracebacks import cut_off, may_be_of, with_words
from .diverged import divergence
from .ends import TRACEBACK, broken_off, is_after_end, is_consequence
from .exception_lines import SEVERE
from .interleaved import with_interleaved
from .judgement import Failure, Judgement, Verdict, without_aborts, without_copies
from .launcher_messages import is_of_another
from .mere_warnings import warned
from .progress_signs import STEP, TRAINING
from .prose import in_prose
from .without_exception import (
    before_stop,
    failures_by_message,
    in_context,
    of_line,
    without_exception,
)

TRACED = re.compile(rf'{re.escape(TRACEBACK)}|\bFile "[^"]+", line \d')
"""A line of a traceback; what a logger writes above the first is about the same error."""
LINES_OF_FRAME = 4
"""Maximum lines that a frame takes in a traceback."""
MUTE = ("RuntimeError", "SystemError", "Exception")
"""Exceptions that libraries raise with a mere status code."""


def judge(attempts: dict[int, Reading], catalogue: Sequence[KnownFailure]) -> tuple[Judgement, ...]:
    """The judgement on every attempt, in order."""
    readings = [reading for _, reading in sorted(attempts.items())] or [Reading()]
    return tuple(_judge(place, reading, catalogue) for place, reading in enumerate(readings, 1))


def decisive(judgements: Sequence[Judgement]) -> Judgement:
    """The judgement on the job's end: the last, unless inconclusive."""
    *before, last = judgements
    is_cut = last.root is not None and last.root.finding.record.message.endswith(CUT_OFF)
    if not is_cut and (last.break_off is None or last.break_off.goes_on):
        return last
    is_resumed = last.break_off is not None and last.break_off.activity is TRAINING
    failed = (
        one
        for one in reversed(before)
        if one.failures and not (is_resumed and _was_stopped(one.failures[0]))
    )
    return next(failed, last)


def _judge(attempt: int, reading: Reading, catalogue: Sequence[KnownFailure]) -> Judgement:
    failures = tuple(_failures(reading, catalogue))
    is_reported = reading.has_failed or reading.deaths
    if failures and not is_reported and all(is_after_end(each, reading) for each in failures):
        return Judgement(attempt, Verdict.HEALTHY, suspect=failures[0].finding)
    if failures:
        if failures[0].finding.entry is not None:
            verdict = Verdict.UNFINISHED if _is_wanted(failures[0]) else Verdict.KNOWN
            suspect = _suspect(failures[0], reading, catalogue)
            return Judgement(attempt, verdict, failures, suspect=suspect)
        record = failures[0].finding.record
        has_words = record.exception or (record.exit_code is None and record.signal is None)
        if has_words and not is_consequence(failures[0]):
            suspect = _suspect(failures[0], reading, catalogue)
            return Judgement(attempt, Verdict.UNKNOWN, failures, suspect=suspect)
        is_bare_end = record.rank is not None and not record.exception
        rank = record.rank if is_bare_end else reading.first_rank
        others = [line for line in reading.complaints if line.text.strip() != record.message]
        complaints = telling(others, rank)
        if complaints and not record.log_tail:
            failures = (in_context(failures[0], reading), *failures[1:])
        return Judgement(attempt, Verdict.UNKNOWN, failures, complaints=complaints)
    break_off = broken_off(reading)
    if reading.has_failed and not (reading.ends or break_off.goes_on):
        complaints = telling(reading.complaints, reading.first_rank)
        return Judgement(attempt, Verdict.UNKNOWN, complaints=complaints)
    error = break_off.error
    is_after = error is None or is_after_end(Failure(finding_of(error.record, ()), error), reading)
    if reading.ends and is_after:
        suspect = None if error is None else finding_of(error.record, ())
        return Judgement(attempt, Verdict.HEALTHY, suspect=suspect, warned=warned(reading))
    about = None if break_off.error or break_off.complaint else warned(reading)
    return Judgement(attempt, Verdict.UNFINISHED, break_off=break_off, warned=about)


def _failures(reading: Reading, catalogue: Sequence[KnownFailure]) -> list[Failure]:
    """All failures of an attempt, the root cause first."""
    sure, doubtful = _by_certainty(reading, catalogue)
    sure = without_copies(without_aborts(sure))
    if not any(failure.finding.entry for failure in sure):
        sure = with_interleaved(sure, reading, catalogue)
    if not sure:
        sure = [
            failure
            for failure in doubtful
            if (failure.finding.entry and not _is_of_remains(failure)) or _counts(failure, reading)
        ]
    if not sure:
        told = chain(failures_by_message(reading, catalogue), in_prose(reading, catalogue))
        sure = [*islice(told, 1)]
    is_traced = any(failure.finding.record.frames for failure in sure)
    cut = None if is_traced or reading.has_failed or reading.deaths else cut_off(reading)
    if cut is not None and all(may_be_of(failure, cut) for failure in sure):
        sure = [with_words(cut, sure, reading, catalogue)]
    if not sure and not reading.deaths:
        sure = [*without_exception(reading)]
    if not sure and not reading.deaths:
        sure = [
            Failure(Finding(event.record, Role.INITIATING, None), event)
            for event in reading.untrained[:1]
        ]
    if sure and all(failure.finding.role is Role.TEARDOWN for failure in sure):
        sure = [*before_stop(reading), *sure]
    failures = [*_with_stops_first(sure), *_deaths(reading, sure, catalogue)]
    is_single_file = len({failure.evidence.file for failure in failures}) == 1

    def order(failure: Failure) -> tuple[int, bool, bool, float]:
        """Sort key: lines of different files have no common order, so torchrun's report decides."""
        role, is_bare, at = urgency(failure.finding)
        is_later = not is_single_file and failure.finding.record.rank != reading.first_rank
        return role, is_bare, is_later, at

    return _with_divergence(sorted(failures, key=order), reading, catalogue)


def _with_divergence(
    failures: Sequence[Failure], reading: Reading, catalogue: Sequence[KnownFailure]
) -> list[Failure]:
    """Puts diverged operations first, if all other failures are consequences."""
    differ = divergence(reading.events)
    if differ is None or not all(map(is_consequence, failures)):
        return list(failures)
    return [Failure(finding_of(differ.record, catalogue), differ), *failures]


def _by_certainty(
    reading: Reading, catalogue: Sequence[KnownFailure]
) -> tuple[list[Failure], list[Failure]]:
    """Certain failures, and failures that count only without certain ones.

    Ignores lines without an exception or an entry.
    """
    sure: list[Failure] = []
    doubtful: list[Failure] = []
    narrowed = prefilter(catalogue, len(reading.events))
    for event in reading.events:
        failure = Failure(_finding(event.record, narrowed(event.record)), event)
        if failure.finding.entry is None and (not event.record.exception or event.is_ignored):
            continue
        is_expected = event.is_warned or (event.record.frames and event.place in reading.survived)
        is_survived = event.is_handled or event.progress >= (1 if is_expected else SURVIVED)
        if is_survived and not (reading.has_failed or reading.deaths):
            continue
        is_noise = reading.ends and not reading.has_failed and is_consequence(failure)
        says_little = (
            failure.evidence.is_bare
            and failure.finding.entry is None
            and not reading.died_of(event)
        )
        if is_noise and not event.record.exception and WARNING.search(event.lines[-1][1]):
            continue  # Ray tries again, and the run ended well
        is_doubtful = event.is_ignored or event.is_handled or is_noise
        is_doubtful = is_doubtful or event.is_spoken or says_little
        (doubtful if is_doubtful else sure).append(failure)
    return sure, doubtful


def _suspect(root: Failure, reading: Reading, catalogue: Sequence[KnownFailure]) -> Finding | None:
    """The first error before a waiting or stopped rank's end, which the run seemed to survive.

    Without an entry, what was printed before an exception without a sentence.
    """
    entry, file, at = root.finding.entry, root.evidence.file, root.finding.record.at
    if entry is None:
        return _reason(root.finding.record)
    if entry.role is Role.INITIATING:
        return None
    errors = [
        (event.is_spoken, place, finding)
        for place, event in enumerate(reading.events)
        if (event.record.exception and event.file == file and event.record.at < at)
        and not (event.is_ignored or event.is_handled or event.is_warned)
        and (finding := _finding(event.record, catalogue)).role is Role.INITIATING
    ]
    if errors:
        return min(errors, key=lambda error: error[:2])[2]
    lines = [line for line in reading.last_lines.get(file, ()) if line.number < at]
    nearest = at - LINES_OF_FRAME * (1 + len(root.finding.record.frames))
    traced = (one.number for one in lines if one.number > nearest and TRACED.search(one.text))
    began = min(traced, default=at + 1) - 1
    after_steps = takewhile(
        lambda line: STOPPED_EARLY.search(line.text) or not STEP.search(line.text), reversed(lines)
    )
    suspects = chain(
        (one for one in reading.complaints if one.file == file and SEVERE.search(one.text)),
        (one for one in after_steps if STOPPED_EARLY.search(one.text)),
    )
    return next(
        (of_line(one.rank, one.number, one.text) for one in suspects if one.number < began), None
    )


def _reason(record: FailureRecord) -> Finding | None:
    """The complaint before an exception whose message is at most a word."""
    is_mute = record.exception.rpartition(".")[2] in MUTE and len(record.message.split()) < 2
    if not is_mute or record.is_raised_by_user(next(record.raised())):
        return None
    complaint = next(iter(complaints_before(record)), None)
    return None if complaint is None else of_line(record.rank, record.at, complaint)


def _finding(record: FailureRecord, catalogue: Sequence[KnownFailure]) -> Finding:
    """The finding for a record; reports of another process's end are consequences."""
    finding = finding_of(record, catalogue)
    is_later = finding.entry is None and is_of_another(record.exception, record.message)
    return replace(finding, role=Role.CASCADE) if is_later else finding


LACKS = ("AttributeError", "TypeError", "NameError", "ImportError")
"""Exceptions of an object that was never completely made."""


def _is_of_remains(failure: Failure) -> bool:
    """Whether an object failed as Python removed it, by what it had never got."""
    record = failure.finding.record
    is_lacking = record.exception.rpartition(".")[2] in LACKS
    is_deeper = bool(record.frames) and record.frames[-1].function != "__del__"
    return failure.evidence.is_ignored and is_lacking and is_deeper


def _counts(failure: Failure, reading: Reading) -> bool:
    """Whether a possibly caught exception counts as the failure without others.

    It counts if nothing shows that the run continued.
    """
    event = failure.evidence
    if reading.has_failed or reading.deaths:
        return True
    return not (event.is_ignored or event.progress or event.file in reading.ends)


def _with_stops_first(failures: Sequence[Failure]) -> list[Failure]:
    """Makes an external signal the root cause, if it came first.

    A closed terminal sends SIGHUP (tests/logs/terminal-closed-ms-swift.log).
    """
    first = min(failures, key=lambda failure: failure.finding.record.at, default=None)
    is_single_file = len({failure.evidence.file for failure in failures}) == 1
    if first is None or first.finding.role is not Role.TEARDOWN or not is_single_file:
        return list(failures)
    began = Failure(replace(first.finding, role=Role.INITIATING), first.evidence)
    return [began, *(failure for failure in failures if failure is not first)]


def _was_stopped(failure: Failure) -> bool:
    """Whether the run was stopped from outside."""
    entry = failure.finding.entry
    return entry is not None and entry.role is Role.TEARDOWN


def _is_wanted(failure: Failure) -> bool:
    """Whether the user stopped the run, or the run caught a signal and continued."""
    if not _was_stopped(failure):
        return False
    record = failure.finding.record
    is_by_hand = "KeyboardInterrupt" in (record.exception or record.message)
    return is_by_hand or failure.evidence.progress > 0


def _deaths(
    reading: Reading, failures: Sequence[Failure], catalogue: Sequence[KnownFailure]
) -> Iterable[Failure]:
    """The launcher's reports on workers that add to the workers' output.

    A killed worker writes nothing (tests/logs/real-worker-killed-torchrun.log). Exit codes after an
    exception, aborts with a message, and requested stops count only without other causes.
    """
    ranks = {failure.finding.record.rank for failure in failures}
    are_consequences = bool(failures) and all(map(is_consequence, failures))
    are_consequences &= reading.first_rank is None or reading.first_rank not in ranks
    seen: set[tuple[int | None, int | None]] = set()
    for death in reading.deaths:
        record = death.record
        if (record.rank, record.exit_code) in seen:
            continue
        seen.add((record.rank, record.exit_code))
        finding = finding_of(record, catalogue)
        is_requested = death.is_after_hang or record.signal in (signal.SIGTERM, signal.SIGINT)
        is_silent = record.signal in (None, signal.SIGABRT)
        is_others = are_consequences and record.rank is not None and not {None, record.rank} & ranks
        if failures and (is_requested or (is_silent and not (is_others and record.signal is None))):
            continue
        yield Failure(finding, death)
