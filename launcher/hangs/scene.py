"""Finds out why nothing moves, from all ranks' recorders and stacks together.

The recorders come first: they show which ranks have entered a collective and which have not. A
wait is followed to the ranks that don't wait themselves. If the recorders don't show it, the stacks
may; if these don't either, no rank is blamed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..progress.board import Phase
from .activity import is_busy, is_gone, is_traced, is_unbegun
from .loops import has_left
from .places import (
    MAY_WAIT,
    WAITS_FOR_OTHERS,
    Place,
    is_leaving,
    is_saving,
    place_of,
    waiting_function,
)
from .report import HangKind
from .sequences import deviants, is_familiar
from .standing import Collective, Standing
from .waits import Recorders, Split, Wait, recorders_of, splits_of, waits_of

_UNSEEN = frozenset({Place.BACKWARD, Place.UNREAD})
"""Places in which a rank may be in the middle of a step."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why nothing moves.

    Attributes:
        is_recorded: the recorders show that ranks are in different collectives.
    """

    kind: HangKind
    culprits: frozenset[int] = frozenset()
    collective: Collective | None = None
    is_recorded: bool = False


class Scene:
    """All ranks together, with the conclusions from their recorders and stacks."""

    def __init__(self, standings: Sequence[Standing]) -> None:
        self.by_rank: Mapping[int, Standing] = {each.rank: each for each in standings}
        self.places = {each.rank: place_of(each.frames) for each in standings}
        self.recorders: Recorders = recorders_of(standings)
        self.waits: Sequence[Wait] = waits_of(self.recorders)
        self.splits: Sequence[Split] = splits_of(self.recorders)
        self.by_stack = {each.rank for each in standings if self._waits_by_stack(each)}
        self.waiting = frozenset({wait.rank for wait in self.waits} | self.by_stack)

    def _waits_by_stack(self, standing: Standing) -> bool:
        """Whether its stack shows that it waits for others.

        In the backward pass, and at its device, a rank may also compute: its recorder shows that,
        else its processor time. Ranks with a device spin while they wait.
        """
        place = self.places[standing.rank]
        if place in WAITS_FOR_OTHERS or standing.collectives is not None:
            return place in WAITS_FOR_OTHERS
        return place in MAY_WAIT and (standing.utilization is not None or not is_busy(standing))

    def is_any_busy(self, ranks: Iterable[int]) -> bool:
        """Whether any of these works; ranks with a device spin while they wait."""
        found = [self.by_rank[rank] for rank in ranks]
        return any(each.utilization is None and is_busy(each) for each in found)

    def cause(self) -> Cause:
        """Why nothing moves; the first that applies."""
        stopped = {rank for rank, each in self.by_rank.items() if each.state == "T"}
        if stopped:
            return Cause(HangKind.STOPPED, frozenset(stopped), self._awaited(stopped))
        gone = {rank for rank, each in self.by_rank.items() if is_gone(each)}
        if gone:
            return Cause(HangKind.GONE, frozenset(gone), self._awaited(gone))
        if self.splits:
            return self._split(self.splits[0])
        if any(wait.missing for wait in self.waits):
            return self._missing()
        if self.waiting:
            return self._unexplained()
        return self._nobody_waits()

    def _awaited(self, culprits: Iterable[int]) -> Collective | None:
        """The collective in which most ranks wait for these, else in which most wait at all."""
        wanted = set(culprits)
        named = [wait for wait in self.waits if wanted & (wait.missing | wait.unknown)]
        waits = named or self.waits
        counts = Counter(
            (wait.collective.group, wait.collective.number, wait.collective.kind) for wait in waits
        )
        if not counts:
            return None
        key = min(counts, key=lambda key: (-counts[key], key[1], key))
        found = [
            wait.collective
            for wait in waits
            if (wait.collective.group, wait.collective.number, wait.collective.kind) == key
        ]
        return max(found, key=lambda each: len(each.ranks))

    def _split(self, split: Split) -> Cause:
        """Ranks are in different collectives as the same number of a group."""
        in_it = frozenset(rank for _, ranks in split.parts for rank in ranks)
        members = self.recorders.members(split.group)
        odd = self._deviants(in_it)
        tied = in_it if members <= in_it else frozenset()  # the missing recorders might decide
        for mine, ranks in reversed(split.parts):
            left, rest = frozenset(ranks), in_it - frozenset(ranks)
            if mine.is_retired or not all(self._has_left(rank, rest, deep=True) for rank in left):
                continue
            kept = next(part for part, own in split.parts if left.isdisjoint(own))
            is_mutual = any(self._has_left(rank, left, deep=True) for rank in rest)
            is_beyond = all(self._has_left(rank, rest) for rank in left)
            is_regular = all(is_familiar(self.recorders, rank, kept) for rank in rest)
            if (left == odd and (is_beyond or not is_mutual)) or (
                is_beyond and is_regular and (not is_mutual or (tied and not odd))
            ):
                ended = {rank for rank in self.by_rank if self._has_ended(rank)}
                return Cause(HangKind.ENDED, left | ended, kept, is_recorded=True)
        collective = next(
            (part for part, ranks in split.parts if odd.isdisjoint(ranks)), split.parts[0][0]
        )
        return Cause(HangKind.DIVERGENT, odd or tied, collective, is_recorded=True)

    def _deviants(self, ranks: frozenset[int]) -> frozenset[int]:
        """The ranks among these that have left the sequence of all, else of these.

        Where ranks send messages, as from stage to stage of a pipeline, their programs differ.
        """
        entries = self.recorders.entries
        if not any(entry.is_message for own in entries.values() for entry in own):
            odd = deviants(self.recorders, entries) & ranks
            if odd:
                return odd
        return deviants(self.recorders, ranks)

    def _missing(self) -> Cause:
        """Ranks wait for others that haven't entered their collective: who doesn't wait?"""
        awaited: dict[int, set[int]] = {}
        for wait in self.waits:
            awaited.setdefault(wait.rank, set()).update(wait.missing)
        targets = set().union(*awaited.values())
        sinks = {rank for rank in targets if not awaited.get(rank)}
        free = sinks - self.waiting
        if free:
            return self._absent(free)
        if not sinks:
            return self._cycle(awaited)
        # They wait as well, unseen by the recorders: for a rank that doesn't, if there is one.
        others = {rank for rank in self.by_rank if self._stands_free(rank)}
        if others:
            return self._absent(others)
        if any(wait.rank in sinks for wait in self.waits) or self._unread():
            return Cause(HangKind.UNKNOWN, collective=self._awaited(sinks))
        rest = frozenset(self.by_rank) - sinks
        is_end = all(self._has_left(rank, rest) for rank in sinks)
        kind = HangKind.ENDED if is_end else HangKind.DIVERGENT
        return Cause(kind, frozenset(sinks), self._awaited(sinks))

    def _cycle(self, awaited: Mapping[int, set[int]]) -> Cause:
        """Ranks wait for each other in collectives of different groups."""
        ranks = {rank for rank in awaited if awaited[rank]}
        while outside := {rank for rank in ranks if not awaited[rank] & ranks}:
            ranks -= outside
        while unasked := {
            rank for rank in ranks if not any(rank in awaited[other] for other in ranks)
        }:
            ranks -= unasked
        left = {rank for rank in ranks if self._has_left(rank, ranks - {rank})}
        culprits = self._deviants(frozenset(ranks)) or frozenset(left)
        if not culprits and self.recorders.entries.keys() == self.by_rank.keys():
            culprits = frozenset(ranks)
        kind = HangKind.ENDED if culprits and culprits <= left else HangKind.DIVERGENT
        return Cause(kind, culprits, self._awaited(culprits), is_recorded=True)

    def _unexplained(self) -> Cause:
        """Ranks wait, and no recorder shows for whom: the ranks that stand elsewhere remain."""
        free = {
            rank
            for rank in self.by_rank
            if self._stands_free(rank) and any(self._may_await(at, rank) for at in self.waiting)
        }
        if free:
            return self._absent(free)
        if not self._unread() and (parts := self._parts_by_stack()):
            return parts
        complete = [wait.collective for wait in self.waits if not wait.missing | wait.unknown]
        return Cause(HangKind.UNKNOWN, collective=next(iter(complete), self._awaited(())))

    def _stands_free(self, rank: int) -> bool:
        """Whether it is at a place where nobody waits for others, or hasn't begun."""
        each = self.by_rank[rank]
        if rank in self.waiting:
            return False
        if is_unbegun(each):
            return True
        place = self.places[rank]
        if place is Place.UNREAD:
            return is_traced(each) or each.phase is Phase.ENDED
        return place not in MAY_WAIT or (
            place is Place.BACKWARD and each.utilization is None and is_busy(each)
        )

    def _may_await(self, waiting: int, rank: int) -> bool:
        """Whether a waiting rank may wait for another."""
        own = [wait for wait in self.waits if wait.rank == waiting]
        return not own or any(rank in wait.unknown for wait in own)

    def _unread(self) -> bool:
        """Whether nothing is known of some rank that is alive."""
        return any(
            each.collectives is None and self.places[rank] is Place.UNREAD
            for rank, each in self.by_rank.items()
            if not (is_unbegun(each) or each.phase is Phase.ENDED)
        )

    def _parts_by_stack(self) -> Cause | None:
        """The odd ranks if stacks alone show different collectives; None if they don't.

        Messages prove nothing. A failing network holds up at least two ranks of a group, so only a
        single rank is blamed.
        """
        if self.waits:
            return None
        calls = {
            rank: waiting_function(self.by_rank[rank].frames) or self.places[rank].value
            for rank in self.waiting
        }
        counts = Counter(calls.values())
        if len(counts) < 2 or {"send", "recv", "wait", "device", "lock"} & set(counts):
            return None
        for call in counts:
            ranks = frozenset(rank for rank in calls if calls[rank] == call)
            rest = self.waiting - ranks
            if len(ranks) <= len(rest) and all(self._has_left(rank, rest) for rank in ranks):
                return Cause(HangKind.ENDED, ranks if len(ranks) == 1 else frozenset())
        odd = frozenset(rank for rank in calls if counts[calls[rank]] * 2 < len(calls))
        return Cause(HangKind.DIVERGENT, odd if len(odd) == 1 else frozenset())

    def _nobody_waits(self) -> Cause:
        loading = {
            rank
            for rank, place in self.places.items()
            if place is Place.LOADER and not is_busy(self.by_rank[rank])
        }
        alive = [each for each in self.by_rank.values() if not self._has_ended(each.rank)]
        if any(is_busy(each) and self.places[each.rank] is not Place.UNREAD for each in alive):
            return Cause(HangKind.BUSY)
        if loading and loading == {each.rank for each in alive}:
            return Cause(HangKind.LOADER, frozenset(loading))
        if any(self.places[each.rank] is Place.UNREAD or is_busy(each) for each in alive):
            return Cause(HangKind.UNKNOWN)
        return Cause(HangKind.IDLE)

    def _absent(self, culprits: set[int]) -> Cause:
        """The cause if others wait for these ranks; if some of them work, only those are blamed."""
        busy = {rank for rank in culprits if is_busy(self.by_rank[rank])}
        if busy:
            return Cause(HangKind.BUSY, frozenset(busy), self._awaited(busy))
        rest = self.waiting - culprits
        kinds = set()
        for rank in culprits:
            if is_traced(self.by_rank[rank]):
                kinds.add(HangKind.STOPPED)
            elif self._has_left(rank, rest):
                kinds.add(HangKind.ENDED)
            elif self.places[rank] is Place.LOADER:
                kinds.add(HangKind.LOADER)
            else:
                kinds.add(HangKind.ABSENT)
        kind = kinds.pop() if len(kinds) == 1 else HangKind.ABSENT
        return Cause(kind, frozenset(culprits), self._awaited(culprits))

    def _has_ended(self, rank: int) -> bool:
        return self.by_rank[rank].phase is Phase.ENDED

    def _has_left(self, rank: int, others: Iterable[int], *, deep: bool = False) -> bool:
        """Whether a rank has left the training in which others still are."""
        mine = self.by_rank[rank]
        if mine.phase is Phase.ENDED:
            return True
        if rank == 0 and (mine.phase is Phase.SAVING or is_saving(mine.frames)):
            return False  # rank 0 alone saves, in the middle of the training
        training = [
            each
            for each in map(self.by_rank.__getitem__, others)
            if each.phase in (Phase.TRAINING, Phase.LOADING)
        ]
        told = [has_left(mine.frames, each.frames, deep=deep) for each in training]
        if any(answer is not None for answer in told):
            return all(answer is not False for answer in told)
        return is_leaving(mine) and any(self.places[each.rank] in _UNSEEN for each in training)
