"""Detects ranks in different collective operations from their watchdogs' messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..core.quantities import count_of, noun_of
from ..evidence.failure_record import HANG, FailureRecord
from .attempts import Evidence

WORK = re.compile(
    r"\[Rank (?P<rank>\d+)\] Watchdog caught collective operation timeout: "
    r"Work[NH]CCL\(SeqNum=(?P<number>\d+), OpType=(?P<operation>\w+)"
    r"(?:, NumelIn=(?P<size>\d+))?"
)
"""The watchdog's message; the rank is the process group's."""
GROUP = re.compile(
    r"\[PG (?:ID )?(?P<id>\d+)\s*(?:PG GUID (?P<guid>[^\s(\]]+))?\s*(?:\([^)]*\))?\s*"
    r"Rank (?P<rank>\d+)\].{0,99}?\bwork: (?P<number>\d+)"
)
"""The line with the process group, whose ID counts groups per process."""
DEFAULT = ("", "0")
"""The group of all ranks, which a log may not name."""
EQUAL = ("ALLREDUCE", "BROADCAST", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE")
"""Operations with tensors of equal size on all ranks."""
OF_SHARDS = ("_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE")
"""Operations of ZeRO-3 and FSDP, whose own entries say more about a lone rank."""
OF_ALL = ("ALLREDUCE", "_ALLGATHER_BASE", "ALLGATHER", "_REDUCE_SCATTER_BASE", "REDUCE_SCATTER")
"""Operations that no rank completes before all have come."""
OF_SOME = ("SEND", "RECV", "COALESCED", "UNKNOWN")
"""Operations of only some ranks, or of unknown kind."""
FEWEST = 3
"""Minimum ranks of which one can be the odd one."""
MOST = 8
"""Maximum ranks to list per operation."""


@dataclass(frozen=True, slots=True)
class Work:
    """The operation in which a rank waited.

    Attributes:
        group: GUID of its process group; empty for all ranks.
        number: its sequence number in the group, from 1.
        operation: torch's name of its kind.
        size: elements sent by the rank; None if unknown or legitimately different.
    """

    group: str
    number: int
    operation: str
    size: int | None

    def __str__(self) -> str:
        """Formats as `ALLREDUCE 80078 (1,024 elements)`."""
        size = "" if self.size is None else f" ({count_of(self.size, 'element')})"
        return f"{self.operation} {self.number}{size}"


def divergence(events: Iterable[Evidence]) -> Evidence | None:
    """Evidence that ranks were in different operations with the same number, if any."""
    works: dict[int, tuple[Work, Evidence]] = {}
    for event in events:
        match = WORK.search(event.record.message)
        if match is not None and int(match["rank"]) not in works:
            work = _work(match, event.record.log_tail)
            if work is not None:
                works[int(match["rank"])] = work, event
    for first, event in works.values():
        alike = {
            rank: (work, other)
            for rank, (work, other) in works.items()
            if (work.group, work.number) == (first.group, first.number)
        }
        if len({str(work) for work, _ in alike.values()}) > 1:
            return _evidence(alike, event)
    return _with_odd_rank(works)


def _with_odd_rank(works: Mapping[int, tuple[Work, Evidence]]) -> Evidence | None:
    """Evidence of one rank in an operation of another kind or size than all others' common one.

    The number alone may differ because a rank didn't get its neighbour's data. Two ranks prove it
    if the one behind is in an operation that the other can't have completed without it.
    """
    ranks_in: dict[Work, list[int]] = {}
    for rank, (work, _) in works.items():
        ranks_in.setdefault(work, []).append(rank)
    if len(ranks_in) != 2:
        return None
    few, many = sorted(ranks_in, key=lambda work: len(ranks_in[work]))
    kinds = {few.operation, many.operation}
    is_other = (few.operation, few.size) != (many.operation, many.size)
    is_sharded = kinds & set(OF_SHARDS) and "BROADCAST" not in kinds
    if len(ranks_in[few]) > 1 or few.group != many.group or is_sharded or not is_other:
        return None
    if len(works) < FEWEST and not _has_passed(few, many):
        return None
    return _evidence(works, works[min(works)][1])


def _has_passed(one: Work, other: Work) -> bool:
    """Whether one of two ranks is past an operation of all, and both are in different kinds."""
    earlier = min(one, other, key=lambda work: work.number)
    return one.operation != other.operation and earlier.operation in OF_ALL


def _work(match: re.Match[str], around: Iterable[str]) -> Work | None:
    """The operation in a watchdog's line; None if it isn't comparable."""
    named = [
        place
        for line in around
        for place in GROUP.finditer(line)
        if (place["rank"], place["number"]) == (match["rank"], match["number"])
    ]
    groups = {place["guid"] or ("" if place["id"] in DEFAULT else None) for place in named}
    if match["operation"] in OF_SOME or len(groups) > 1 or None in groups:
        return None
    group = next(iter(groups), "") or ""
    size = int(match["size"]) if match["size"] and match["operation"] in EQUAL else None
    group = "" if group in DEFAULT else group
    return Work(group, int(match["number"]), match["operation"], size)


def _evidence(works: Mapping[int, tuple[Work, Evidence]], first: Evidence) -> Evidence:
    """The evidence, with one line per operation from the first one's file."""
    by_work: dict[str, list[int]] = {}
    lines: dict[str, tuple[int, str]] = {}
    for rank, (work, event) in sorted(works.items()):
        by_work.setdefault(str(work), []).append(rank)
        if event.file == first.file:
            lines.setdefault(str(work), event.lines[-1])
    positions = "; ".join(f"{_ranks(ranks)} in {work}" for work, ranks in by_work.items())
    record = FailureRecord(
        None,
        min(event.record.at for _, event in works.values()),
        HANG,
        f"ranks are in different collectives: {positions}",
        log_tail=first.record.log_tail,
    )
    return Evidence(record, first.file, tuple(lines.values()))


def _ranks(ranks: list[int]) -> str:
    more = ", ..." if len(ranks) > MOST else ""
    return f"{noun_of(len(ranks), 'rank')} {', '.join(map(str, ranks[:MOST]))}{more}"
