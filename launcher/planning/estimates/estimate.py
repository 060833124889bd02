"""How much memory a candidate needs, by component."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Component(StrEnum):
    """The purpose of an amount of memory."""

    PARAMETERS = "parameters"
    """The weights that forward and backward compute with."""
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"
    """The optimizer's states and fp32 master weights."""
    BUCKETS = "buckets"
    """Buffers for collectives: DDP's and ZeRO's buckets."""
    GATHERED = "gathered"
    """ZeRO-3's parameters that are gathered at the moment, and those that are never partitioned."""
    ACTIVATIONS = "activations"
    """Activations that the layers save for the backward pass, and one layer's temporaries."""
    LOGITS = "logits"
    """The output projection's result, its upcast and the loss's temporaries."""
    VISION = "vision"
    """Activations of the vision tower."""
    STEP = "step"
    """The optimizer step's temporaries."""
    CONTEXT = "context"
    """The accelerator's context, workspaces and communication buffers."""
    SLACK = "slack"
    """Memory that the allocator loses in fragments."""
    KEPT = "kept"
    """Memory that the allocator keeps though nothing uses it; it is given back if it is needed."""


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
    """The memory that a candidate needs on every rank.

    Attributes:
        phases: the moments that can be the peak, e.g. the backward pass and the optimizer step.
        bound: the budgeted bytes: expected plus a margin; docs/design/memory.md: how often it held.
        host: bytes of host memory that all ranks of a node need together.
        error: relative error that 19 of 20 estimates of such trainings stay below; if an attempt
            ran out of memory, which is measured, there is none, but a reserve: it is below 0.
        assumed: assumptions about unknown values, as phrases.
    """

    phases: tuple[Phase, ...]
    bound: int
    host: int
    error: float
    assumed: tuple[str, ...] = ()

    @property
    def peak(self) -> Phase:
        """The moment that needs the most memory."""
        return max(self.phases, key=lambda phase: phase.needed)

    @property
    def expected(self) -> int:
        """Bytes at that moment."""
        return self.peak.total

    @property
    def least(self) -> int:
        """The lower bound of the need in bytes: the expected need, less the error."""
        return int(self.peak.needed * (1 - self.error))
