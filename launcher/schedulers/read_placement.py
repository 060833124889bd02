"""Determines the placement from schedulers and other sources.

A scheduler is a function that reads this launcher's place from the environment; None if another
scheduler has started it. To support another one, add its function to `SCHEDULERS`. The first that
recognizes this launcher is used, so a scheduler that runs inside another precedes it.

The command line takes precedence over torchrun's PET_* variables, and these over the scheduler. But
the scheduler has the number of launchers and this one's rank: contradictions are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from ..core.errors import LaunchError
from ..core.placement import PORT, JoinTimes, Placement
from ..core.quantities import count_of
from ..system.terminal import Row
from . import kubernetes, mpi, slurm, torchrun_options
from .reported import Reported, Stated, Value
from .this_host import Here

SCHEDULERS: tuple[Callable[[Mapping[str, str], Here], Reported | None], ...] = (
    *(mpi.read, slurm.read),
    *(kubernetes.volcano, kubernetes.pytorch_job, kubernetes.indexed_job),
)


def placement_of(
    options: Mapping[str, str],
    silence: float | None,
    environment: Mapping[str, str],
    here: Here,
    *,
    is_launch: bool = True,
) -> Placement:
    """This launcher's placement by all sources, with the source of each value.

    The `options` are torchrun's, by names with underscores; `silence` is None by default.
    A plan, without `is_launch`, doesn't need this node's rank or node 0's address.

    Raises:
        LaunchError: sources contradict each other, a value is missing or invalid.
    """
    read = (scheduler(environment, here) for scheduler in SCHEDULERS)
    scheduled = next((report for report in read if report is not None), None)
    pet = torchrun_options.variables(environment)
    conf = {
        **torchrun_options.configuration(pet.get("rdzv_conf", ""), "PET_RDZV_CONF"),
        **torchrun_options.configuration(options.get("rdzv_conf", ""), "--rdzv-conf"),
    }
    times, notes = torchrun_options.times(conf, silence), torchrun_options.unknown_settings(conf)
    if "standalone" in options or "standalone" in pet:
        # Ignores everything else about other nodes, as torchrun does.
        return replace(_alone(scheduled, times), sources=notes)
    stated = [
        torchrun_options.reported(options, by_variable=False, here=here),
        torchrun_options.reported(pet, by_variable=True, here=here),
    ]
    if scheduled is None and not any(report.address for report in stated):
        stated.append(torchrun_options.default_endpoint(options, pet))
    placement = _merged(stated, scheduled, times, is_launch=is_launch)
    if is_launch and not placement.is_alone and not placement.is_head and not placement.address:
        if scheduled is not None and scheduled.by == "Kubernetes":
            raise kubernetes.NO_SERVICE
        raise LaunchError(
            f"this is one of {count_of(placement.nodes, 'node')}, but node 0's address isn't given",
            "give --master-addr HOST, or --rdzv-endpoint HOST:PORT, on every node",
        )
    return replace(placement, sources=(*placement.sources, *notes))


def _merged(
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
        if _first(report.nodes for report in stated) is not None:
            scheduled = replace(scheduled, nodes=None, rank=None)
        elif is_launch:
            raise refusal
    every = [*stated, *([] if scheduled is None else [scheduled])]
    counted = _first(report.nodes for report in every)
    _refuse_lone_rank(stated, counted)
    if counted is None:
        only = replace(_alone(scheduled, times), meeting=_store_port(stated))
        if scheduled is None or scheduled.rank is None:
            return only
        text = (
            f"node {scheduled.rank.value} to {scheduled.by} ({scheduled.rank.source}), but trains "
        )
        return replace(only, sources=(("note", f"{text}alone: the number of nodes isn't given"),))
    least, most = _node_range(counted, scheduled)
    if most == 1:
        return replace(_alone(scheduled, times), meeting=_store_port(stated))
    numbered = _rank_of(every, scheduled)
    rank = None if numbered is None else numbered.value
    if numbered is not None and numbered.value >= most:
        problem = (
            f"this is node {rank} ({numbered.source}), but there are {most} ({counted.source})"
        )
        raise LaunchError(problem, "nodes are numbered from 0")
    is_head = next((report.is_head for report in every if report.is_head is not None), None)
    may_join = rank is None and is_head is None and any(report.owns_address for report in every)
    if rank is None and (may_join or is_head):
        rank = 0
    address = _first(report.address for report in every)
    port = _first(report.port for report in every)
    job = _first(report.job for report in every)
    placement = replace(
        _alone(scheduled, times),
        nodes=most,
        least=least,
        rank=rank,
        may_join=may_join,
        address="" if address is None else address.value,
        port=PORT if port is None else port.value,
        hosts=() if scheduled is None else scheduled.hosts,
        job="" if job is None else job.value,
    )
    return replace(placement, sources=tuple(_rows(placement, stated, scheduled)))


def _refuse_lone_rank(stated: Sequence[Reported], counted: Stated[tuple[int, int]] | None) -> None:
    """Refuses a rank without a number of nodes: every node would train alone, as the first.

    Raises:
        LaunchError: a rank is stated, but no number of nodes.
    """
    named = _first(report.rank for report in stated)
    if named is not None and named.value and (counted is None or counted.value == (1, 1)):
        how = "the number of nodes isn't given"
        if counted is not None:
            how = f"there is 1 ({counted.source})"
        problem = f"this is node {named.value} ({named.source}), but {how}"
        raise LaunchError(problem, "give --nnodes, the same on every node")


def _alone(scheduled: Reported | None, times: JoinTimes) -> Placement:
    """The placement of a single launcher, with the scheduler's devices."""
    if scheduled is None:
        return Placement(times=times)
    workers = scheduled.nproc
    return Placement(
        local=scheduled.local,
        beside=scheduled.beside,
        nproc=None if workers is None else workers.value,
        nproc_source="" if workers is None else workers.source,
        times=times,
    )


def _store_port(stated: Sequence[Reported]) -> int:
    """The user's port on a single node; a script may use it for a process group."""
    named = _first(report.port for report in stated)
    return 0 if named is None else named.value


def _first(values: Iterable[Stated[Value] | None]) -> Stated[Value] | None:
    """The first value that is stated."""
    return next((value for value in values if value is not None), None)


def _node_range(counted: Stated[tuple[int, int]], scheduled: Reported | None) -> tuple[int, int]:
    """The minimum and maximum number of nodes, at most the scheduler's number.

    Raises:
        LaunchError: the scheduler has started fewer or more than requested.
    """
    least, most = counted.value
    if scheduled is None or scheduled.nodes is None or scheduled.nodes is counted:
        return least, most
    started = scheduled.nodes.value[1]
    if least <= started <= most:
        return least, started
    requested = f"{counted.source} {Placement(most, least).range_text}"
    what = "launchers, several on a host" if scheduled.has_tasks else "nodes"
    problem = f"{requested}, but {scheduled.by} has started {started} {what} "
    raise LaunchError(
        f"{problem}({scheduled.nodes.source})",
        f"leave {counted.source} out: {scheduled.by} sets it; "
        "--standalone lets every launcher train by itself",
    )


def _rank_of(every: Sequence[Reported], scheduled: Reported | None) -> Stated[int] | None:
    """This node's rank.

    Raises:
        LaunchError: a source contradicts the scheduler.
    """
    rank = _first(report.rank for report in every)
    by_scheduler = None if scheduled is None else scheduled.rank
    if rank is None or scheduled is None or by_scheduler is None:
        return rank
    if rank.value != by_scheduler.value:
        problem = (
            f"{rank.source} {rank.value}, but to {scheduled.by} this is node "
            f"{by_scheduler.value} ({by_scheduler.source})"
        )
        hint = f"leave {rank.source} out"
        if scheduled.nodes is None:
            hint += f", or unset {by_scheduler.source} if it numbers something else"
        raise LaunchError(problem, hint)
    return rank


def _rows(place: Placement, stated: Sequence[Reported], scheduled: Reported | None) -> list[Row]:
    """Rows on the sources of values."""

    def source(name: str) -> str:
        """The source of a value, and its unused sources."""
        values = [getattr(report, name) for report in stated]
        used = _first([*values, None if scheduled is None else getattr(scheduled, name)])
        if used is None:
            return ""
        unused = [each for each in values if each is not None and each.value != used.value]
        return "; ".join([used.source, *(f"{each.source} isn't used" for each in unused)])

    count = str(place.nodes) if place.least == place.nodes else f"{place.least} to {place.nodes}"
    if scheduled is not None and scheduled.has_tasks:
        count += f" launchers, {place.beside} of them on this host"
    if place.rank is None:
        text = f"{count}, numbered as they join ({source('nodes')})"
    else:
        where = source("rank") or source("address")
        text = f"{count}, this is node {place.rank} ({source('nodes')}, {where})"
    rows = [("nodes", text)]
    if place.address:
        shown = f"[{place.address}]" if ":" in place.address else place.address
        by = source("port") or "the default port"
        text = f"{shown}:{place.port} ({', '.join(dict.fromkeys((source('address'), by)))})"
        rows.append(("node 0", text))
    if place.job:
        rows.append(("job", f"{place.job} ({source('job')})"))
    return rows
