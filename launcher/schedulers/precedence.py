"""Merges several sources into one placement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..core.errors import LaunchError
from ..core.placement import PORT, JoinTimes, Placement
from ..core.row import Row
from .reported import Reported


def merged(
    stated: Sequence[Reported], scheduled: Reported | None, times: JoinTimes, *, is_launch: bool
) -> Placement:
    """The placement of this launcher.

    The statements in torchrun's terms (`stated`) are in order of precedence; `scheduled` is from
    the scheduler that started this launcher.

    Raises:
        LaunchError: two sources contradict each other.
    """
    refusal = None if scheduled is None else scheduled.refusal
    if scheduled is not None and refusal is not None:
        if _first(stated, "nodes") is not None:
            scheduled = replace(scheduled, nodes=None, rank=None)
        elif is_launch:
            raise refusal
    every = [*stated, *([] if scheduled is None else [scheduled])]
    counted = _first(every, "nodes")
    _refuse_lone_rank(stated, counted)
    if counted is None or counted.nodes is None:
        only = replace(alone(scheduled, times), meeting=_store_port(stated))
        if scheduled is None or scheduled.rank is None:
            return only
        text = f"node {scheduled.rank} to {scheduled.by} ({scheduled.origin('rank')}), but trains "
        return replace(only, sources=(("note", f"{text}alone: nothing says how many there are"),))
    least, most = _node_range(counted, scheduled)
    if most == 1:
        return replace(alone(scheduled, times), meeting=_store_port(stated))
    numbered = _source_of_rank(every, scheduled)
    rank = None if numbered is None else numbered.rank
    if numbered is not None and rank is not None and rank >= most:
        problem = (
            f"this is node {rank} ({numbered.origin('rank')}), but there are {most} "
            f"({counted.origin('nodes')})"
        )
        raise LaunchError(problem, "nodes are numbered from 0")
    told = _first(every, "is_head")
    may_join = rank is None and told is None and any(report.owns_address for report in every)
    if rank is None and (may_join or (told is not None and told.is_head)):
        rank = 0
    address, port, job = (_first(every, name) for name in ("address", "port", "job"))
    found = replace(
        alone(scheduled, times),
        nodes=most,
        least=least,
        rank=rank,
        may_join=may_join,
        address="" if address is None else address.address,
        port=PORT if port is None or port.port is None else port.port,
        hosts=() if scheduled is None else scheduled.hosts,
        job="" if job is None else job.job,
    )
    return replace(found, sources=tuple(_rows(found, stated, scheduled)))


def _refuse_lone_rank(stated: Sequence[Reported], counted: Reported | None) -> None:
    """Refuses a rank without a number of nodes: every node would train alone, as the first.

    Raises:
        LaunchError: a rank is stated, but no number of nodes.
    """
    named = _first(stated, "rank")
    if named is not None and named.rank and (counted is None or counted.nodes == (1, 1)):
        how = "nothing says how many nodes there are"
        if counted is not None:
            how = f"there is 1 ({counted.origin('nodes')})"
        problem = f"this is node {named.rank} ({named.origin('rank')}), but {how}"
        raise LaunchError(problem, "give --nnodes, the same on every node")


def alone(scheduled: Reported | None, times: JoinTimes) -> Placement:
    """The placement of a single launcher, with the scheduler's devices."""
    if scheduled is None:
        return Placement(times=times)
    return Placement(
        local=scheduled.local,
        beside=scheduled.beside,
        nproc=scheduled.nproc,
        nproc_source="" if scheduled.nproc is None else scheduled.origin("nproc"),
        times=times,
    )


def _store_port(stated: Sequence[Reported]) -> int:
    """The user's port on a single node; a script may use it for a process group."""
    named = _first(stated, "port")
    return 0 if named is None or named.port is None else named.port


def _first(every: Sequence[Reported], name: str) -> Reported | None:
    """The first source with a value."""
    return next((report for report in every if getattr(report, name) not in (None, "")), None)


def _node_range(counted: Reported, scheduled: Reported | None) -> tuple[int, int]:
    """The minimum and maximum number of nodes, at most the scheduler's number.

    Raises:
        LaunchError: the scheduler has started fewer or more than requested.
    """
    assert counted.nodes is not None, "it says how many"
    least, most = counted.nodes
    if scheduled is None or scheduled.nodes is None or scheduled is counted:
        return least, most
    there = scheduled.nodes[1]
    if least <= there <= most:
        return least, there
    asked = f"{counted.origin('nodes')} {Placement(most, least).range_text}"
    what = "launchers, several on a host" if scheduled.has_tasks else "nodes"
    problem = f"{asked}, but {scheduled.by} has started {there} {what} "
    raise LaunchError(
        f"{problem}({scheduled.origin('nodes')})",
        f"leave {counted.origin('nodes')} out: {scheduled.by} sets it; "
        "--standalone lets every launcher train by itself",
    )


def _source_of_rank(every: Sequence[Reported], scheduled: Reported | None) -> Reported | None:
    """The source of this node's rank.

    Raises:
        LaunchError: a source contradicts the scheduler.
    """
    found = _first(every, "rank")
    if found is None or scheduled is None or scheduled.rank is None:
        return found
    if found.rank != scheduled.rank:
        problem = (
            f"{found.origin('rank')} {found.rank}, but to {scheduled.by} this is node "
            f"{scheduled.rank} ({scheduled.origin('rank')})"
        )
        hint = f"leave {found.origin('rank')} out"
        if scheduled.nodes is None:
            hint += f", or unset {scheduled.origin('rank')} if it numbers something else"
        raise LaunchError(problem, hint)
    return found


def _rows(found: Placement, stated: Sequence[Reported], scheduled: Reported | None) -> list[Row]:
    """Rows on the sources of values."""

    def source(name: str) -> str:
        """The source of a value, and its unused sources."""
        every = [*stated, *([] if scheduled is None else [scheduled])]
        first = _first(every, name)
        if first is None:
            return ""
        value = getattr(first, name)
        unused = [
            f"{report.origin(name)} isn't used"
            for report in stated
            if report is not first and getattr(report, name) not in (None, "", value)
        ]
        return "; ".join([first.origin(name), *unused])

    count = str(found.nodes) if found.least == found.nodes else f"{found.least} to {found.nodes}"
    if scheduled is not None and scheduled.has_tasks:
        count += f" launchers, {found.beside} of them on this host"
    if found.rank is None:
        text = f"{count}, numbered as they join ({source('nodes')})"
    else:
        where = source("rank") or source("address")
        text = f"{count}, this is node {found.rank} ({source('nodes')}, {where})"
    rows = [("nodes", text)]
    if found.address:
        shown = f"[{found.address}]" if ":" in found.address else found.address
        by = source("port") or "the default port"
        text = f"{shown}:{found.port} ({', '.join(dict.fromkeys((source('address'), by)))})"
        rows.append(("node 0", text))
    if found.job:
        rows.append(("job", f"{found.job} ({source('job')})"))
    return rows
