"""A candidate's memory by component."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


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
