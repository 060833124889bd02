"""A candidate's memory by component, and the ranks among which a job is divided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

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


class Component(StrEnum):
    """The purpose of an amount of memory."""

    PARAMETERS = "parameters"
    """Weights used by forward and backward passes."""
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"
    """The optimizer's states and fp32 master weights."""
    BUCKETS = "buckets"
    """Buffers for collectives: DDP's and ZeRO's buckets."""
    GATHERED = "gathered"
    """ZeRO-3's currently gathered parameters, and those never partitioned."""
    ACTIVATIONS = "activations"
    """Activations saved by layers for the backward pass, and one layer's temporaries."""
    LOGITS = "logits"
    """The output projection's result, its upcast and the loss's temporaries."""
    VISION = "vision"
    """Activations of the vision tower."""
    STEP = "step"
    """The optimizer step's temporaries."""
    CONTEXT = "context"
    """The accelerator's context, workspaces and communication buffers."""
    SLACK = "slack"
    """Memory lost to fragmentation in the allocator."""
    KEPT = "kept"
    """Unused memory cached by the allocator, released if needed."""


@dataclass(frozen=True, slots=True)
class Phase:
    """The memory at one moment of a step, bytes by component."""

    name: str
    components: Mapping[Component, int]

    @property
    def total(self) -> int:
        """Total bytes."""
        return sum(self.components.values())

    @property
    def needed(self) -> int:
        """Bytes without which the training fails."""
        return self.total - self.components.get(Component.KEPT, 0)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A candidate's memory on every rank.

    Attributes:
        phases: possible peaks, e.g. the backward pass and the optimizer step.
        bound: budgeted bytes, expected plus a margin; accuracy in docs/design/memory.md.
        host: bytes of host memory needed by all ranks of a node together.
        error: relative error not exceeded by 19 of 20 similar estimates; after an attempt ran out
            of memory, a reserve below 0 instead, as its need is measured.
        assumed: assumptions about unknown values, as phrases.
    """

    phases: tuple[Phase, ...]
    bound: int
    host: int
    error: float
    assumed: tuple[str, ...] = ()

    @property
    def peak(self) -> Phase:
        """The moment with the most memory."""
        return max(self.phases, key=lambda phase: phase.needed)

    @property
    def expected(self) -> int:
        """Bytes at the peak."""
        return self.peak.total

    @property
    def least(self) -> int:
        """Lower bound of the need in bytes: the expected need less the error."""
        return int(self.peak.needed * (1 - self.error))
