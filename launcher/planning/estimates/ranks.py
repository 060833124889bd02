"""Number of ranks in the job and per host."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.hardware import Hardware
from ...core.request import LaunchRequest


@dataclass(frozen=True, slots=True)
class Ranks:
    """The data-parallel ranks of a job.

    Attributes:
        world: number of all ranks.
        on_host: maximum ranks on a host, which share its memory and processors.
    """

    world: int
    on_host: int

    @property
    def span_hosts(self) -> bool:
        """Whether the ranks are on several hosts."""
        return self.on_host < self.world


def ranks_of(request: LaunchRequest, hardware: Hardware) -> Ranks:
    """The ranks of a launch, at most one per accelerator.

    CPUs don't limit the number.
    """
    most = max(request.nodes)
    bound = hardware.accelerators if hardware.accelerator.memory else 0
    here = min(most, bound or most) * request.placement.beside
    return Ranks(request.world, min(request.world, here))
