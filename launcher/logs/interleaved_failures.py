"""Replaces fragments of two ranks' mixed messages by the failures that they are of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..catalogue.entry import Finding, KnownFailure, Role
from ..evidence.failure_record import FailureRecord
from .attempts import MOST_AFTER_SEVERE, Evidence, Reading
from .failures import Failure
from .interleaved import doubled_exception, entry_in

NEAR = 40
"""Maximum lines of two ranks' mixed tracebacks."""


def with_interleaved(
    failures: Sequence[Failure], reading: Reading, catalogue: Sequence[KnownFailure]
) -> list[Failure]:
    """Replaces fragments of mixed messages.

    Only if nothing else is known (test_two_ranks_letters_in_turns).
    """
    separated = list(_separated(reading, catalogue))
    whole = [
        failure for failure in failures if not any(_is_near(failure, other) for other in separated)
    ]
    return [*whole, *separated]


def _is_near(failure: Failure, other: Failure) -> bool:
    """Whether an exception may be a fragment of two ranks' mixed output."""
    distance = abs(failure.finding.record.at - other.finding.record.at)
    return failure.evidence.file == other.evidence.file and distance < NEAR


def _separated(reading: Reading, catalogue: Sequence[KnownFailure]) -> Iterator[Failure]:
    """Known failures in two ranks' mixed messages, outside of intact tracebacks."""
    clean = [
        (event.file, event.lines[0][0], event.lines[-1][0])
        for event in reading.events
        if event.record.frames and not event.is_bare
    ]
    for file, number, text in reading.shuffled:
        if any(file == other and low - NEAR <= number <= high for other, low, high in clean):
            continue
        evidence = ((number, text),)
        if (entry := entry_in(text, catalogue)) is not None:
            record = FailureRecord(None, float(number), message=text)
            yield Failure(Finding(record, entry.role, entry), Evidence(record, file, evidence))
        elif (pair := doubled_exception(text)) and reading.is_last(file, number, MOST_AFTER_SEVERE):
            record = FailureRecord(None, float(number), exception=pair.kind, message=pair.message)
            yield Failure(Finding(record, Role.INITIATING, None), Evidence(record, file, evidence))
