"""From the evidence of a log's attempts to a verdict: a known failure, an unknown one, or none."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ..deaths import death_text
from ..diagnose import finding_of, urgency
from ..failure import Finding, KnownFailure, Role
from ..record import FailureRecord
from .attempts import ENOUGH, Evidence, Reading
from .shuffled import entry_in

NEAR = 40
"""Lines that two ranks' tracebacks take together."""


class Verdict(StrEnum):
    """What a log shows."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    HEALTHY = "healthy"


@dataclass(frozen=True, slots=True)
class Shown:
    """A finding and the evidence for it."""

    finding: Finding
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one attempt came to.

    Attributes:
        attempt: its number, from 1.
        verdict: what it shows.
        shown: everything that failed, the root first.
        is_complete: the training said that it has come to its end.
        goes_on: it was seen to go on.
    """

    attempt: int
    verdict: Verdict
    shown: tuple[Shown, ...]
    is_complete: bool
    goes_on: bool

    @property
    def root(self) -> Shown | None:
        """What began it."""
        return self.shown[0] if self.shown else None

    @property
    def others(self) -> tuple[Shown, ...]:
        """Causes beside the root that don't come from it."""
        if self.root is None or self.root.finding.role is not Role.INITIATING:
            return ()
        seen = {name_of(self.root)}
        streams = {_stream(self.root)}
        others: list[Shown] = []
        for one in self.shown[1:]:
            if (
                one.finding.role is Role.INITIATING
                and (one.finding.record.exception or one.finding.entry)
                and name_of(one) not in seen
                and _stream(one) not in streams
            ):
                others.append(one)
            seen.add(name_of(one))
            streams.add(_stream(one))
        return tuple(others)


def name_of(one: Shown) -> str:
    """What a finding is called: its entry, else its exception, else how the worker ended."""
    return one.finding.name or death_text(one.finding.record)


def _stream(one: Shown) -> tuple[str, int | None]:
    return one.evidence.file, one.finding.record.rank


def judge(attempts: dict[int, Reading], catalogue: Sequence[KnownFailure]) -> tuple[Judgement, ...]:
    """Every attempt's judgement, in order."""
    result = []
    for place, (_, reading) in enumerate(sorted(attempts.items())):
        shown = _shown(reading, catalogue)
        goes_on = reading.progress >= ENOUGH
        if not shown:
            has_failed = reading.has_failed and not reading.is_complete and not goes_on
            verdict = Verdict.UNKNOWN if has_failed else Verdict.HEALTHY
        elif shown[0].finding.entry is None:
            verdict = Verdict.UNKNOWN
        else:
            verdict = Verdict.KNOWN
        result.append(Judgement(place + 1, verdict, tuple(shown), reading.is_complete, goes_on))
    return tuple(result) or (Judgement(1, Verdict.HEALTHY, (), False, False),)


def decisive(judgements: Sequence[Judgement]) -> Judgement:
    """The attempt that tells how the job ended: the last, unless it tells nothing at all."""
    *before, last = judgements
    if last.verdict is Verdict.HEALTHY and not last.is_complete and not last.goes_on:
        return next((one for one in reversed(before) if one.shown), last)
    return last


def _shown(reading: Reading, catalogue: Sequence[KnownFailure]) -> list[Shown]:
    """All findings of an attempt, the root first."""
    sure: list[Shown] = []
    doubtful: list[Shown] = []
    for event in reading.events:
        one = Shown(finding_of(event.record, catalogue), event)
        if one.finding.entry is None and (not event.record.exception or event.is_ignored):
            continue
        is_noise = reading.is_complete and not reading.has_failed and _is_consequence(one)
        (doubtful if event.is_ignored or is_noise or _says_little(one) else sure).append(one)
    known = {_first_words(one) for one in sure if one.finding.entry}
    sure = [one for one in sure if one.finding.entry or _first_words(one) not in known]
    if not any(one.finding.entry for one in sure):
        at_once = list(_shuffled(reading, catalogue))
        sure = [one for one in sure if not any(_is_near(one, other) for other in at_once)]
        sure += at_once
    if not sure:
        has_failed = reading.has_failed or bool(reading.deaths)
        sure = [one for one in doubtful if has_failed or one.finding.entry]
    shown = [*_with_stops_first(sure), *_deaths(reading, sure, catalogue)]
    is_one_file = len({one.evidence.file for one in shown}) == 1

    def order(one: Shown) -> tuple[int, bool, bool, float]:
        """Lines of several files are in no order; there the launcher's word counts."""
        role, is_bare, at = urgency(one.finding)
        is_later = not is_one_file and one.finding.record.rank != reading.first_rank
        return role, is_bare, is_later, at

    return sorted(shown, key=order)


def _first_words(one: Shown) -> tuple[str, str]:
    """An exception's type and first line: the same on another rank, it is the same failure.

    A log may have kept only one rank's message whole.
    """
    record = one.finding.record
    return record.exception, record.message.partition("\n")[0].strip()


def _is_consequence(one: Shown) -> bool:
    return one.finding.role is not Role.INITIATING


def _says_little(one: Shown) -> bool:
    """Whether a line only looks like an exception: without a traceback, and nobody knows it."""
    return one.evidence.is_bare and one.finding.entry is None


def _with_stops_first(shown: Sequence[Shown]) -> list[Shown]:
    """The findings, where a signal from outside that came before everything else began it."""
    first = min(shown, key=lambda one: one.finding.record.at, default=None)
    is_one_file = len({one.evidence.file for one in shown}) == 1
    if first is None or first.finding.role is not Role.TEARDOWN or not is_one_file:
        return list(shown)
    began = Shown(replace(first.finding, role=Role.INITIATING), first.evidence)
    return [began, *(one for one in shown if one is not first)]


def _is_near(one: Shown, other: Shown) -> bool:
    """Whether an exception may be the rest of what two ranks wrote at once."""
    distance = abs(one.finding.record.at - other.finding.record.at)
    return one.evidence.file == other.evidence.file and distance < NEAR


def _shuffled(reading: Reading, catalogue: Sequence[KnownFailure]) -> Iterable[Shown]:
    """Known messages that two ranks wrote at once, elsewhere than in a clean traceback."""
    clean = [
        (event.file, event.lines[0][0], event.lines[-1][0])
        for event in reading.events
        if event.record.frames and not event.is_bare
    ]
    for file, number, text in reading.shuffled:
        if any(file == other and low - NEAR <= number <= high for other, low, high in clean):
            continue
        if (entry := entry_in(text, catalogue)) is not None:
            record = FailureRecord(None, float(number), message=text)
            yield Shown(
                Finding(record, entry.role, entry), Evidence(record, file, ((number, text),))
            )


def _deaths(
    reading: Reading, shown: Sequence[Shown], catalogue: Sequence[KnownFailure]
) -> Iterable[Shown]:
    """What the launcher said of its workers, as far as it says more than they did themselves.

    A worker that raised ends with an exit code, one that aborts has said why, and one that was
    asked to stop is nobody's cause; those matter only where there is nothing else.
    """
    ranks = {one.finding.record.rank for one in shown}
    are_consequences = bool(shown) and all(one.finding.role is not Role.INITIATING for one in shown)
    told: set[tuple[int | None, int | None]] = set()
    for death in reading.deaths:
        record = death.record
        if (record.rank, record.exit_code) in told:
            continue
        told.add((record.rank, record.exit_code))
        finding = finding_of(record, catalogue)
        is_asked = record.signal in (signal.SIGTERM, signal.SIGINT)
        is_silent = record.signal in (None, signal.SIGABRT)
        is_others = are_consequences and record.rank is not None and not {None, record.rank} & ranks
        if shown and (is_asked or (is_silent and not (is_others and record.signal is None))):
            continue
        yield Shown(finding, death)
