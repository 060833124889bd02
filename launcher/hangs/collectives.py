"""The collectives of all ranks together, from their flight recorders: who waits for whom, who left.

A collective is complete once every rank of its group has entered it. So a rank waits in its first
unfinished collective, for the ranks that are known not to have entered it.

All ranks of a group run the same program, so their recorders hold the same sequence, in any group.
Where two sequences part, the majority is right; in a tie, the ranks that continue as the run has
continued before at such a place.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from .standing import Collective, Standing

_DEFAULT = "default_pg"
"""The description of the group of all ranks (torch/distributed/distributed_c10d.py)."""
_SIZED = re.compile(
    r"^(all_?reduce|reduce|broadcast|_?all_?gather_(base|into_tensor)|_?reduce_scatter_(base|tensor))"
)
"""Kinds whose inputs have the same number of elements on all ranks: torch's own analyzer compares
more (torch/distributed/flight_recorder/components/types.py, `Op.match`), but lists of tensors may
differ between ranks, and a rank that scatters or gathers has others than its peers."""
_MESSAGE = re.compile(r"^(send|recv) (\d+)(?:->|<-)(\d+)")
"""As ProcessGroupNCCL.cpp names messages: the rank, then its peer, both within the group."""
Group = tuple[str, tuple[int, ...]]
"""A process group: its name, and its ranks if they are known."""
_Step = tuple[object, ...]
_CONTEXT = 64
"""Collectives before the parting that are compared with earlier ones."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A rank's wait in a collective.

    Attributes:
        collective: the first of a group that it hasn't finished.
        missing: ranks of the group that are known not to have entered it.
        unknown: ranks that may be missing: their entries, or their membership, aren't known.
    """

    rank: int
    collective: Collective
    missing: frozenset[int]
    unknown: frozenset[int]


@dataclass(frozen=True, slots=True)
class Split:
    """A collective in which ranks differ: it can't be completed.

    Attributes:
        parts: the ranks by what they have entered as this number of the group; the largest first.
    """

    group: Group
    parts: tuple[tuple[Collective, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Recorders:
    """The contents of all ranks' flight recorders.

    Attributes:
        entries: of each rank whose recorder can be read, the oldest first.
    """

    entries: Mapping[int, tuple[Collective, ...]]
    ranks: frozenset[int]

    @cached_property
    def by_group(self) -> Mapping[Group, Mapping[int, Mapping[int, Collective]]]:
        """The collectives by group, rank and number."""
        groups: dict[Group, dict[int, dict[int, Collective]]] = defaultdict(dict)
        for rank, entries in self.entries.items():
            for entry in entries:
                if not entry.is_message:
                    numbered = groups[self.group_of(entry, rank)].setdefault(rank, {})
                    numbered[entry.number] = entry
        return groups

    @cached_property
    def _known_ranks(self) -> Mapping[str, set[tuple[int, ...]]]:
        """The ranks of the groups of a name, from any rank's recorder."""
        known: dict[str, set[tuple[int, ...]]] = defaultdict(set)
        for entries in self.entries.values():
            for entry in entries:
                if entry.ranks:
                    known[entry.group].add(tuple(sorted(entry.ranks)))
        return known

    def group_of(self, entry: Collective, rank: int) -> Group:
        """The group of a rank's collective; another rank's recorder may have its ranks."""
        if entry.ranks:
            return entry.group, tuple(sorted(entry.ranks))
        fitting = [ranks for ranks in self._known_ranks.get(entry.group, ()) if rank in ranks]
        return entry.group, fitting[0] if len(fitting) == 1 else ()

    def entered(self, rank: int, group: Group) -> int | None:
        """The last number of a group that a rank has entered, 0 for none; None if unknown.

        A recorder is a ring: one that has dropped its first entries may have dropped whole groups.
        """
        if rank not in self.entries:
            return None
        if numbered := self.by_group.get(group, {}).get(rank):
            return max(numbered)
        first: dict[Group, int] = {}
        for entry in self.entries[rank]:
            if not entry.is_message:
                first.setdefault(self.group_of(entry, rank), entry.number)
        return 0 if all(number <= 1 for number in first.values()) else None

    def members(self, group: Group) -> frozenset[int]:
        """The ranks that certainly belong to a group."""
        name, ranks = group
        if ranks:
            return frozenset(ranks)
        return self.ranks if is_default(name) else frozenset(self.by_group.get(group, ()))


def recorders_of(standings: Sequence[Standing]) -> Recorders:
    """The recorders of the ranks."""
    entries = {
        standing.rank: standing.collectives
        for standing in standings
        if standing.collectives is not None
    }
    return Recorders(entries, frozenset(standing.rank for standing in standings))


def waits_of(recorders: Recorders) -> tuple[Wait, ...]:
    """The collectives and messages in which ranks wait, for each rank and group the first."""
    waits = []
    for group, ranks in recorders.by_group.items():
        members = recorders.members(group)
        is_open = not group[1] and not is_default(group[0])
        for rank, numbered in ranks.items():
            pending = [entry for entry in numbered.values() if not entry.is_retired]
            if not pending:
                continue
            head = min(pending, key=lambda entry: entry.number)
            known = {other: recorders.entered(other, group) for other in members}
            missing = {
                other for other, last in known.items() if last is not None and last < head.number
            }
            unknown = {other for other, last in known.items() if last is None}
            if is_open:
                unknown |= recorders.ranks - members
            waits.append(Wait(rank, head, frozenset(missing), frozenset(unknown)))
    return (*waits, *_messages(recorders))


def _messages(recorders: Recorders) -> list[Wait]:
    """Unfinished sends and receives, each waiting for its peer unless that is in it as well."""
    waits = []
    for rank, entries in recorders.entries.items():
        for entry in entries:
            if entry.is_retired or not entry.is_message:
                continue
            peer = _peer(entry)
            if peer is None:
                waits.append(Wait(rank, entry, frozenset(), recorders.ranks - {rank}))
            elif peer not in recorders.entries:
                waits.append(Wait(rank, entry, frozenset(), frozenset({peer})))
            else:
                is_met = any(
                    other.is_message
                    and not other.is_retired
                    and _peer(other) == rank
                    and other.kind[:4] != entry.kind[:4]
                    for other in recorders.entries[peer]
                )
                waits.append(Wait(rank, entry, frozenset(() if is_met else {peer}), frozenset()))
            break
    return waits


def _peer(entry: Collective) -> int | None:
    """The rank at the other end of a message; None if the recorder doesn't have it."""
    match = _MESSAGE.match(entry.kind)
    if match is None:
        return None
    peer = int(match[3])
    if entry.ranks:
        return sorted(entry.ranks)[peer] if peer < len(entry.ranks) else None
    return peer if is_default(entry.group) else None


def splits_of(recorders: Recorders) -> tuple[Split, ...]:
    """The collectives in which ranks differ and at least one still waits; of each group the first.

    A rank may have finished its own: the root of a broadcast doesn't wait for the others.
    """
    splits = []
    for group, ranks in recorders.by_group.items():
        for number in sorted(set().union(*ranks.values())):
            here = {rank: entries[number] for rank, entries in ranks.items() if number in entries}
            if all(entry.is_retired for entry in here.values()):
                continue
            parts: list[tuple[Collective, list[int]]] = []
            for rank, entry in sorted(here.items()):
                for other, same in parts:
                    if not _differ(entry, other):
                        same.append(rank)
                        break
                else:
                    parts.append((entry, [rank]))
            if len(parts) > 1:
                parts.sort(key=lambda part: (-len(part[1]), part[1]))
                splits.append(Split(group, tuple((entry, tuple(same)) for entry, same in parts)))
                break
    return tuple(splits)


def _differ(first: Collective, second: Collective) -> bool:
    """Whether two collectives can't be the same: in kind, number of elements or dtype."""
    if first.kind != second.kind:
        return True
    if not _SIZED.match(first.kind):
        return False
    sizes = [sum(map(math.prod, entry.shapes)) for entry in (first, second) if entry.shapes]
    dtypes = [set(entry.dtypes) for entry in (first, second) if entry.dtypes]
    return any(len(seen) == 2 and seen[0] != seen[1] for seen in (sizes, dtypes))


def is_default(name: str) -> bool:
    """Whether it is the group of all ranks, by its description or torch's first name."""
    return _DEFAULT in name or name.split()[:1] == ["0"]


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
    for length in range(min(_CONTEXT, len(before)), 0, -1):
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
