"""All ranks of a run that stands still, with what their recorders and stacks show."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from ..evidence.failure_record import Frame
from ..progress.board import Phase
from ..system import regular_files
from . import collectives
from .collectives import Recorders, Split, Wait, recorders_of, splits_of, waits_of
from .places import MAY_WAIT, WAITS_FOR_OTHERS, Place, is_leaving, is_saving, place_of
from .standing import Collective, Standing, is_busy, is_traced, is_unbegun

_UNSEEN = frozenset({Place.BACKWARD, Place.UNREAD})
"""Places in which a rank may be in the middle of a step."""
_LIBRARY = re.compile(r"/(torch|deepspeed|accelerate)/")
"""Libraries whose loops are over buckets and parameters, not over batches."""
_LONGEST = 2 << 20
"""Maximum bytes of a source file; larger ones aren't training loops."""


class Scene:
    """All ranks together, with what their recorders and stacks show."""

    def __init__(self, standings: Sequence[Standing]) -> None:
        self.by_rank: Mapping[int, Standing] = {standing.rank: standing for standing in standings}
        self.places = {standing.rank: place_of(standing.frames) for standing in standings}
        self.recorders: Recorders = recorders_of(standings)
        self.waits: Sequence[Wait] = waits_of(self.recorders)
        self.splits: Sequence[Split] = splits_of(self.recorders)
        by_stack = {standing.rank for standing in standings if self._waits_by_stack(standing)}
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
        return any(standing.utilization is None and is_busy(standing) for standing in standings)

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
            odd = collectives.deviants(self.recorders, entries) & ranks
            if odd:
                return odd
        return collectives.deviants(self.recorders, ranks)

    def stands_free(self, rank: int) -> bool:
        """Whether it certainly waits for no other rank, or hasn't begun."""
        standing = self.by_rank[rank]
        if rank in self.waiting:
            return False
        if is_unbegun(standing):
            return True
        place = self.places[rank]
        if place is Place.UNREAD:
            return is_traced(standing) or standing.phase is Phase.ENDED
        return place not in MAY_WAIT or (
            place is Place.BACKWARD and standing.utilization is None and is_busy(standing)
        )

    def may_await(self, waiting: int, rank: int) -> bool:
        """Whether a waiting rank may wait for another."""
        waits = [wait for wait in self.waits if wait.rank == waiting]
        return not waits or any(rank in wait.unknown for wait in waits)

    def has_unread(self) -> bool:
        """Whether nothing is known of some rank that is alive."""
        return any(
            standing.collectives is None and self.places[rank] is Place.UNREAD
            for rank, standing in self.by_rank.items()
            if not (is_unbegun(standing) or standing.phase is Phase.ENDED)
        )

    def has_left(self, rank: int, others: Iterable[int], *, deep: bool = False) -> bool:
        """Whether a rank has left the training in which others still are."""
        mine = self.by_rank[rank]
        if mine.phase is Phase.ENDED:
            return True
        if rank == 0 and (mine.phase is Phase.SAVING or is_saving(mine.frames)):
            return False  # rank 0 alone saves, in the middle of the training
        training = [
            standing
            for standing in map(self.by_rank.__getitem__, others)
            if standing.phase in (Phase.TRAINING, Phase.LOADING)
        ]
        by_stack = [
            _has_left_loop(mine.frames, standing.frames, deep=deep) for standing in training
        ]
        if any(has_left is not None for has_left in by_stack):
            return False not in by_stack
        return is_leaving(mine) and any(
            self.places[standing.rank] in _UNSEEN for standing in training
        )


def _has_left_loop(
    left: Sequence[Frame], inside: Sequence[Frame], *, deep: bool = False
) -> bool | None:
    """Whether a rank is outside of another rank's loop.

    Both stacks are equal up to the point where they diverge.

    Args:
        left: stack of the rank that may have left, outermost first.
        inside: stack of the other rank.
        deep: also count loops in functions of only the other rank.

    Returns:
        None if the stacks or the file don't show it.
    """
    for depth, (mine, others) in enumerate(zip(left, inside, strict=False)):
        if (mine.file, mine.function) != (others.file, others.function):
            return None
        if mine.line != others.line:
            loops = _loops(mine.file)
            if loops is None:
                return None
            if any(others.line in loop and mine.line not in loop for loop in loops):
                return True
            if not deep:
                return False
            below = [frame for frame in inside[depth + 1 :] if not _LIBRARY.search(frame.file)]
            return any(frame.line in loop for frame in below for loop in _loops(frame.file) or ())
    return None


@lru_cache(maxsize=64)
def _loops(file: str) -> tuple[range, ...] | None:
    """The lines of each loop of a file; None if it can't be read as Python."""
    try:
        tree = ast.parse(regular_files.read(Path(file), _LONGEST))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    return tuple(
        range(node.lineno, (node.end_lineno or node.lineno) + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.For | ast.While | ast.AsyncFor)
    )
