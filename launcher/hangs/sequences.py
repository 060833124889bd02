"""Finds ranks that left the common sequence of collectives.

All ranks of a group run the same program, so their recorders hold the same sequence, in any group.
Where two sequences part, the majority is right; in a tie, the ranks that continue as the run has
continued before at such a place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from .standing import Collective
from .waits import Recorders

_Step = tuple[object, ...]
CONTEXT = 64
"""Collectives before the parting that are compared with earlier ones."""


def deviants(recorders: Recorders, ranks: Iterable[int]) -> frozenset[int]:
    """The ranks that have left the sequence of the others; empty if that isn't decidable."""
    sequences = _aligned(recorders, sorted(ranks))
    if len(sequences) < 2:
        return frozenset()
    lengths = {rank: len(steps) for rank, steps in sequences.items()}
    for at in range(max(lengths.values())):
        here = {rank: steps[at] for rank, steps in sequences.items() if at < lengths[rank]}
        counts = Counter(here.values())
        if len(counts) < 2:
            continue
        ranked = counts.most_common()
        usual = ranked[0][0]
        if ranked[0][1] == ranked[1][1]:
            before = next(steps[:at] for rank, steps in sequences.items() if rank in here)
            predicted = _next(before, [step for step, count in ranked if count == ranked[0][1]])
            if predicted is None:
                return frozenset()
            usual = predicted
        return frozenset(rank for rank, step in here.items() if step != usual)
    return frozenset()


def is_familiar(recorders: Recorders, rank: int, entry: Collective) -> bool:
    """Whether a rank has done such a collective before."""
    return any(
        other.is_retired and _step(other) == _step(entry) for other in recorders.entries[rank]
    )


def _aligned(recorders: Recorders, ranks: Sequence[int]) -> dict[int, tuple[_Step, ...]]:
    """The ranks' sequences from a collective on that all of them have; empty if there is none."""
    for numbered in recorders.by_group.values():
        if not set(ranks) <= numbered.keys():
            continue
        start = max(min(numbered[rank]) for rank in ranks)
        if any(start not in numbered[rank] for rank in ranks):
            continue
        result = {}
        for rank in ranks:
            entries = recorders.entries[rank]
            first = entries.index(numbered[rank][start])
            result[rank] = tuple(_step(entry) for entry in entries[first:] if not entry.is_message)
        return result
    return {}


def _step(entry: Collective) -> _Step:
    """A collective without fields that differ between ranks and times; its group by description."""
    return entry.group.partition(" ")[2], entry.kind, entry.shapes, entry.dtypes


def _next(before: Sequence[_Step], candidates: Sequence[_Step]) -> _Step | None:
    """The candidate that has followed such a sequence most often; None if none has.

    The longest context that has occurred before decides.
    """
    for length in range(min(CONTEXT, len(before)), 0, -1):
        context = tuple(before[-length:])
        follows = Counter(
            before[at]
            for at in range(length, len(before))
            if tuple(before[at - length : at]) == context and before[at] in candidates
        ).most_common(2)
        if follows:
            is_clear = len(follows) == 1 or follows[0][1] > follows[1][1]
            return follows[0][0] if is_clear else None
    return None
