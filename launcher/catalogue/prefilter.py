"""Preselects known failures that a record may match, in one search for all patterns.

Thousands of ranks may report a failure. Matching every signature with a record takes ten
milliseconds; one automaton of all patterns takes a fraction of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..evidence.failure_record import FailureRecord
from .entry import KnownFailure
from .regex import LinearPatterns
from .signature import Signature, collapsed

FEW = 16
"""Minimum records that justify building the automaton, which takes 0.1 s."""
Prefilter = Callable[[FailureRecord], Sequence[KnownFailure]]


def prefilter(catalogue: Sequence[KnownFailure], records: int) -> Prefilter:
    """A function that returns the entries a record may match, in order.

    Other entries can't match: a signature needs its exception, and each of its patterns somewhere
    in the record's texts.

    Args:
        catalogue: all entries.
        records: number of records to match.
    """
    if records < FEW:
        return lambda _record: catalogue
    signs = [(sign, place) for place, entry in enumerate(catalogue) for sign in entry.signatures]
    search = LinearPatterns(sorted({text for sign, _ in signs for text in patterns_of(sign)}))
    by_exception: dict[str | None, list[Needs]] = {}
    for sign, place in signs:
        needs = Needs(
            place, frozenset(patterns_of(sign)), frozenset(patterns_of(sign, with_log=False))
        )
        by_exception.setdefault(sign.exception, []).append(needs)

    def narrowed(record: FailureRecord) -> Sequence[KnownFailure]:
        names = {raised.exception.rpartition(".")[2] for raised in record.raised()}
        known = [need for name in (None, *names) for need in by_exception.get(name, ())]
        matched = {text for part in texts_of(record) for text in search.matching(part)}
        if record.exception:
            known = [need for need in known if need.of_itself <= matched]
        if any(not need.patterns <= matched for need in known):
            lines = collapsed(record.log_tail)
            matched.update(text for line in lines for text in search.matching(line))
        places = {need.place for need in known if need.patterns <= matched}
        return [catalogue[place] for place in sorted(places)]

    return narrowed


@dataclass(frozen=True, slots=True)
class Needs:
    """Patterns that a signature needs in a record's texts.

    Attributes:
        place: the index of its entry in the catalogue.
        patterns: its patterns.
        of_itself: patterns that must match the exception itself, not the log around it.
    """

    place: int
    patterns: frozenset[str]
    of_itself: frozenset[str]


def patterns_of(sign: Signature, *, with_log: bool = True) -> Iterable[str]:
    """The patterns a signature needs; without the log, those that an exception must match.

    Without the log, a line of native code must be in the message.
    """
    parts = [sign.message, sign.source]
    if with_log or not sign.is_of_exception:
        parts.append(sign.log)
    if with_log:
        parts.append(sign.context)
    return (part.pattern for part in parts if part is not None)


def texts_of(record: FailureRecord) -> Iterable[str]:
    """The record's texts to search, without the log."""
    for raised in record.raised():
        yield from collapsed((raised.message, raised.message.partition("\n")[0]))
        yield "" if raised.frame is None else raised.frame.source
    yield from collapsed(tuple(record.message.splitlines()))
