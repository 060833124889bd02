"""Determines the placement from schedulers and other sources.

A scheduler is a function that reads this launcher's place from the environment; None if another
scheduler has started it. To support another one, add its function to
`SCHEDULERS`. The first that recognizes this launcher is used, so a scheduler that runs inside
another precedes it.

The command line takes precedence over torchrun's PET_* variables, and these over the scheduler. But
the scheduler has the number of launchers and this one's rank: contradictions are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..core.count_of import count_of
from ..core.errors import LaunchError
from ..core.placement import Placement
from . import kubernetes, mpi, slurm, torchrun_options
from .precedence import alone, merged
from .reported import Reported
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
        return replace(alone(scheduled, times), sources=notes)
    stated = [
        torchrun_options.reported(options, by_variable=False, here=here),
        torchrun_options.reported(pet, by_variable=True, here=here),
    ]
    if scheduled is None and not any(report.address for report in stated):
        stated.append(torchrun_options.default_endpoint(options, pet))
    placement = merged(stated, scheduled, times, is_launch=is_launch)
    if is_launch and not placement.is_alone and not placement.is_head and not placement.address:
        if scheduled is not None and scheduled.by == "Kubernetes":
            raise kubernetes.NO_SERVICE
        raise LaunchError(
            f"this is one of {count_of(placement.nodes, 'node')}, but node 0's address isn't given",
            "give --master-addr HOST, or --rdzv-endpoint HOST:PORT, on every node",
        )
    return replace(placement, sources=(*placement.sources, *notes))
