"""How many ranks train together, and how many of them share a host."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.hardware import Hardware
from ...core.request import LaunchRequest


@dataclass(frozen=True, slots=True)
class Ranks:
    """The data-parallel ranks of a job.

    Attributes:
        world: all of them.
        on_host: the most ranks on any host; they share its memory and its processors.
    """

    world: int
    on_host: int

    @property
    def span_hosts(self) -> bool:
        """Whether the ranks are on several hosts."""
        return self.on_host < self.world


def ranks_of(request: LaunchRequest, hardware: Hardware) -> Ranks:
    """The ranks of a launch; at most as many per launcher as there are accelerators.

    A CPU, which has no separate memory, doesn't limit them.
    """
    most = max(request.nodes)
    bound = hardware.accelerators if hardware.accelerator.memory else 0
    here = min(most, bound or most) * request.placement.beside
    return Ranks(request.world, min(request.world, here))
