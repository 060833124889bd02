"""Relaunches with the same global batch on fewer workers after nodes were lost."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from fractions import Fraction

from ..core.choices import Framework
from ..core.constraint import Cause, CauseKind, Constraint
from ..core.errors import Refused
from ..core.quantities import count_of
from ..core.request import LaunchRequest
from ..core.workload import Workload


def on_survivors(
    request: LaunchRequest, workload: Workload, lost: Set[int]
) -> LaunchRequest | Refused:
    """The launch on the remaining nodes."""
    workers = tuple(nproc for rank, nproc in enumerate(request.nodes) if rank not in lost)
    least = request.placement.least
    survivors = f"{len(workers)} of {count_of(len(request.nodes), 'node is', 'nodes are')} left"
    if len(workers) < least:
        needed = f"at least {least}" if least < request.placement.nodes else str(least)
        return Refused(f"{survivors}, and --nnodes asks for {needed}: try another allocation")
    whole = request.whole_world or request.world
    batch = workload.micro_steps
    if batch is None:
        unknown = "the script's batch isn't known, so the global batch can't be kept"
        return Refused(f"{survivors}, and {unknown}")
    global_batch = f"a global batch of {batch * whole}"
    if workload.framework is not Framework.TRANSFORMERS:
        problem = "this script's accumulation can't be set from outside"
        return Refused(f"{survivors}, and {problem}: {global_batch} can't be kept")
    if batch * whole % sum(workers):
        uneven = f"can't be spread evenly over {count_of(sum(workers), 'worker')}"
        return Refused(f"{survivors}: {global_batch} {uneven}")
    return replace(request, workers=workers, whole_world=whole)


def growth(request: LaunchRequest) -> Fraction:
    """Growth of a rank's share of the global batch after workers were lost."""
    return Fraction(request.whole_world or request.world, request.world)


def fewer(request: LaunchRequest, workload: Workload) -> Constraint | None:
    """The reason to change a rank's share of the batch; None if no worker was lost."""
    batch, before = workload.micro_steps, request.whole_world
    if before in (None, request.world) or batch is None:
        return None
    workers = f"{request.world} of {count_of(before, 'worker is', 'workers are')} left"
    summary = f"{workers}; the global batch stays {batch * int(before or 0)}"
    return Constraint((), Cause(CauseKind.HARDWARE, "lost nodes", summary))
