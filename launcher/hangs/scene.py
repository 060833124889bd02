"""All ranks of a run that stands still, with what their recorders and stacks show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ..progress.board import Phase
from . import loops, sequences
from .activity import is_busy, is_traced, is_unbegun
from .places import MAY_WAIT, WAITS_FOR_OTHERS, Place, is_leaving, is_saving, place_of
from .standing import Collective, Standing
from .waits import Recorders, Split, Wait, recorders_of, splits_of, waits_of

_UNSEEN = frozenset({Place.BACKWARD, Place.UNREAD})
"""Places in which a rank may be in the middle of a step."""


class Scene:
    """All ranks together, with what their recorders and stacks show."""

    def __init__(self, standings: Sequence[Standing]) -> None:
        self.by_rank: Mapping[int, Standing] = {each.rank: each for each in standings}
        self.places = {each.rank: place_of(each.frames) for each in standings}
        self.recorders: Recorders = recorders_of(standings)
        self.waits: Sequence[Wait] = waits_of(self.recorders)
        self.splits: Sequence[Split] = splits_of(self.recorders)
        by_stack = {each.rank for each in standings if self._waits_by_stack(each)}
        self.waiting = frozenset({wait.rank for wait in self.waits} | by_stack)

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
        standings = map(self.by_rank.__getitem__, ranks)
        return any(each.utilization is None and is_busy(each) for each in standings)

    def awaited(self, culprits: Iterable[int]) -> Collective | None:
        """The collective in which most ranks wait for these, else in which most wait at all."""
        wanted = set(culprits)
        waits = [wait for wait in self.waits if wanted & (wait.missing | wait.unknown)]
        entries: dict[tuple[str, int, str], list[Collective]] = defaultdict(list)
        for entry in (wait.collective for wait in waits or self.waits):
            entries[entry.group, entry.number, entry.kind].append(entry)
        if not entries:
            return None
        key = min(entries, key=lambda key: (-len(entries[key]), key[1], key))
        return max(entries[key], key=lambda entry: len(entry.ranks))

    def deviants(self, ranks: frozenset[int]) -> frozenset[int]:
        """The ranks among these that have left the sequence of all, else of these.

        Where ranks send messages, as from stage to stage of a pipeline, their programs differ.
        """
        entries = self.recorders.entries
        if not any(entry.is_message for of_rank in entries.values() for entry in of_rank):
            odd = sequences.deviants(self.recorders, entries) & ranks
            if odd:
                return odd
        return sequences.deviants(self.recorders, ranks)

    def stands_free(self, rank: int) -> bool:
        """Whether it certainly waits for no other rank, or hasn't begun."""
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

    def may_await(self, waiting: int, rank: int) -> bool:
        """Whether a waiting rank may wait for another."""
        waits = [wait for wait in self.waits if wait.rank == waiting]
        return not waits or any(rank in wait.unknown for wait in waits)

    def has_unread(self) -> bool:
        """Whether nothing is known of some rank that is alive."""
        return any(
            each.collectives is None and self.places[rank] is Place.UNREAD
            for rank, each in self.by_rank.items()
            if not (is_unbegun(each) or each.phase is Phase.ENDED)
        )

    def has_left(self, rank: int, others: Iterable[int], *, deep: bool = False) -> bool:
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
        by_stack = [loops.has_left(mine.frames, each.frames, deep=deep) for each in training]
        if any(has_left is not None for has_left in by_stack):
            return False not in by_stack
        return is_leaving(mine) and any(self.places[each.rank] in _UNSEEN for each in training)
