"""The schedulers: how each says where this launcher stands among those of its job.

A scheduler is a module with `read(environment, here) -> Reported | None`. To teach safe-launch
another one, add a module here and to `SCHEDULERS`. The first that knows this launcher is asked, so
one that runs inside another stands before it.

The command line takes precedence over torchrun's PET_* variables, and these over the scheduler. But
how many launchers there are, and which this is, the scheduler knows: who says otherwise is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ..core.errors import ExitCode, LaunchError
from ..core.placement import Placement
from . import kubernetes, mpi, pytorch_job, slurm, torchrun_options, volcano
from .precedence import alone, merged
from .reported import Reported
from .this_host import Here


class Scheduler(Protocol):
    """What every module in `SCHEDULERS` provides."""

    def read(self, environment: Mapping[str, str], here: Here, /) -> Reported | None:
        """What it says of this launcher; None where it hasn't started it.

        Raises:
            LaunchError: its variables don't hold what it writes there.
        """


SCHEDULERS: tuple[Scheduler, ...] = (mpi, slurm, volcano, pytorch_job, kubernetes)


def placement_of(
    given: Mapping[str, str],
    silence: float | None,
    environment: Mapping[str, str],
    here: Here,
    *,
    is_launch: bool = True,
) -> Placement:
    """Where this launcher stands, by all sources, and what was read where.

    Args:
        given: torchrun's options on the command line, by its names with underscores.
        silence: seconds after which a node that can't be reached is lost; None for the default.
        environment: the launcher's.
        here: this host.
        is_launch: the nodes are going to meet; otherwise only a plan is wanted, for which it
            doesn't matter which node this is and where node 0 is.

    Raises:
        LaunchError: sources contradict each other, something is missing, or has no meaning.
    """
    read = (scheduler.read(environment, here) for scheduler in SCHEDULERS)
    scheduled = next((report for report in read if report is not None), None)
    pet = torchrun_options.variables(environment)
    conf = {
        **torchrun_options.configuration(pet.get("rdzv_conf", ""), "PET_RDZV_CONF"),
        **torchrun_options.configuration(given.get("rdzv_conf", ""), "--rdzv-conf"),
    }
    times = torchrun_options.times(conf, silence)
    if "standalone" in given or "standalone" in pet:
        # Whatever else is said of other nodes is not asked, as torchrun does it.
        return alone(scheduled, times)
    stated = [
        torchrun_options.reported(given, by_variable=False, here=here),
        torchrun_options.reported(pet, by_variable=True, here=here),
    ]
    placement = merged(stated, scheduled, times, is_launch=is_launch)
    if is_launch and not placement.is_alone and not placement.is_head and not placement.address:
        if scheduled is not None and scheduled.by == "Kubernetes":
            raise kubernetes.NO_SERVICE
        raise LaunchError(
            ExitCode.USAGE,
            f"this is one of {placement.nodes} nodes, but nothing says where node 0 is",
            "give --master-addr HOST, or --rdzv-endpoint HOST:PORT, on every node",
        )
    return placement
