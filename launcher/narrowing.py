"""Which known failures a record may show at all: its words are searched once, for all of them.

Thousands of ranks may tell of one failure. To match every signature with a record takes ten
milliseconds; one automaton over all patterns takes a fraction of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .failure import KnownFailure
from .patterns import LinearPatterns
from .record import FailureRecord
from .signature import Signature, collapsed

FEW = 16
"""Records below which the automaton isn't worth its making, a tenth of a second."""
Narrowing = Callable[[FailureRecord], Sequence[KnownFailure]]


def narrowing(catalogue: Sequence[KnownFailure], records: int) -> Narrowing:
    """What gives the entries of a catalogue that a record may show, in their order.

    An entry that it leaves out doesn't match: a signature needs the exception that it names, and
    each of its patterns somewhere in the record's texts.

    Args:
        catalogue: all entries.
        records: how many are going to be judged.
    """
    if records < FEW:
        return lambda _record: catalogue
    signs = [(sign, place) for place, one in enumerate(catalogue) for sign in one.signatures]
    needed = [frozenset(patterns_of(sign)) for sign, _ in signs]
    search = LinearPatterns(sorted({text for texts in needed for text in texts}))
    by_exception: dict[str | None, list[tuple[frozenset[str], int]]] = {}
    for (sign, place), texts in zip(signs, needed, strict=True):
        by_exception.setdefault(sign.exception, []).append((texts, place))

    def narrowed(record: FailureRecord) -> Sequence[KnownFailure]:
        found = {text for part in texts_of(record) for text in search.found(part)}
        names = {one.exception.rpartition(".")[2] for one in record.raised()}
        places = {
            place
            for name in (None, *names)
            for texts, place in by_exception.get(name, ())
            if texts <= found
        }
        return [catalogue[place] for place in sorted(places)]

    return narrowed


def patterns_of(sign: Signature) -> Iterable[str]:
    """The patterns that a signature needs, each in some text of a record."""
    parts = (sign.message, sign.source, sign.log, sign.context)
    return (part.pattern for part in parts if part is not None)


def texts_of(record: FailureRecord) -> Iterable[str]:
    """The texts that patterns of signatures are searched in, each as it is searched."""
    for one in record.raised():
        yield from collapsed((one.message, one.message.partition("\n")[0]))
        yield "" if one.frame is None else one.frame.source
    yield from collapsed(tuple(record.message.splitlines()))
    yield from collapsed(record.log_tail)
