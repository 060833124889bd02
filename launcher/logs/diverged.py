"""Ranks that were in different collective operations, by what their watchdogs wrote."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..core.count_of import count_of, noun_of
from ..evidence.failure_record import HANG, FailureRecord
from .attempts import Evidence

WORK = re.compile(
    r"\[Rank (?P<rank>\d+)\] Watchdog caught collective operation timeout: "
    r"Work[NH]CCL\(SeqNum=(?P<number>\d+), OpType=(?P<operation>\w+)"
    r"(?:, NumelIn=(?P<size>\d+))?"
)
"""The watchdog's line; the rank is that in the process group."""
GROUP = re.compile(
    r"\[PG (?:ID )?(?P<id>\d+)\s*(?:PG GUID (?P<guid>[^\s(\]]+))?\s*(?:\([^)]*\))?\s*"
    r"Rank (?P<rank>\d+)\].{0,99}?\bwork: (?P<number>\d+)"
)
"""The line that names its process group. Its ID counts each process's own groups."""
DEFAULT = ("", "0")
"""The group of all ranks, which a log may not name."""
EQUAL = ("ALLREDUCE", "BROADCAST", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE")
"""Operations that take tensors of the same size from all ranks."""
OF_SOME = ("SEND", "RECV", "COALESCED", "UNKNOWN")
"""Operations that some ranks do alone, or that stand for any."""
MOST = 8
"""Ranks of an operation that are listed."""


@dataclass(frozen=True, slots=True)
class Work:
    """The operation that a rank waited in.

    Attributes:
        group: the GUID of its process group; empty for that of all ranks.
        number: which of the group's operations it was, from 1.
        operation: its kind, in torch's words.
        size: elements that the rank gave; None if that differs by rights or isn't known.
    """

    group: str
    number: int
    operation: str
    size: int | None

    def __str__(self) -> str:
        """As in `ALLREDUCE 80078 (1,024 elements)`."""
        size = "" if self.size is None else f" ({count_of(self.size, 'element')})"
        return f"{self.operation} {self.number}{size}"


def divergence(events: Iterable[Evidence]) -> Evidence | None:
    """The evidence that ranks were in different operations of the same number, if they were."""
    works: dict[int, tuple[Work, Evidence]] = {}
    for event in events:
        found = WORK.search(event.record.message)
        if found is not None and int(found["rank"]) not in works:
            work = _work(found, event.record.log_tail)
            if work is not None:
                works[int(found["rank"])] = work, event
    for first, event in works.values():
        alike = {
            rank: (work, other)
            for rank, (work, other) in works.items()
            if (work.group, work.number) == (first.group, first.number)
        }
        if len({str(work) for work, _ in alike.values()}) > 1:
            return _evidence(alike, event)
    return None


def _work(found: re.Match[str], around: Iterable[str]) -> Work | None:
    """The operation in a watchdog's line; None if it can't be compared."""
    named = [
        place
        for line in around
        for place in GROUP.finditer(line)
        if (place["rank"], place["number"]) == (found["rank"], found["number"])
    ]
    groups = {place["guid"] or ("" if place["id"] in DEFAULT else None) for place in named}
    if found["operation"] in OF_SOME or len(groups) > 1 or None in groups:
        return None
    group = next(iter(groups), "") or ""
    size = int(found["size"]) if found["size"] and found["operation"] in EQUAL else None
    group = "" if group in DEFAULT else group
    return Work(group, int(found["number"]), found["operation"], size)


def _evidence(works: Mapping[int, tuple[Work, Evidence]], first: Evidence) -> Evidence:
    """The evidence, with a line of each operation that stands in the first one's file."""
    by_work: dict[str, list[int]] = {}
    lines: dict[str, tuple[int, str]] = {}
    for rank, (work, event) in sorted(works.items()):
        by_work.setdefault(str(work), []).append(rank)
        if event.file == first.file:
            lines.setdefault(str(work), event.lines[-1])
    said = "; ".join(f"{_ranks(ranks)} in {work}" for work, ranks in by_work.items())
    record = FailureRecord(
        None,
        min(event.record.at for _, event in works.values()),
        HANG,
        f"ranks are in different collectives: {said}",
        log_tail=first.record.log_tail,
    )
    return Evidence(record, first.file, tuple(lines.values()))


def _ranks(ranks: list[int]) -> str:
    more = ", ..." if len(ranks) > MOST else ""
    return f"{noun_of(len(ranks), 'rank')} {', '.join(map(str, ranks[:MOST]))}{more}"
