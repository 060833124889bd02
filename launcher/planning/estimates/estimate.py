"""How much memory a candidate needs, by component."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Component(StrEnum):
    """What the bytes are for."""

    PARAMETERS = "parameters"
    """The weights that forward and backward compute with."""
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"
    """The optimizer's states and fp32 master weights."""
    BUCKETS = "buckets"
    """What is gathered or reduced together: DDP's and ZeRO's buckets."""
    GATHERED = "gathered"
    """ZeRO-3's parameters that are whole for the moment, and those that stay so."""
    ACTIVATIONS = "activations"
    """What the layers keep for the backward pass, and one layer's temporaries."""
    LOGITS = "logits"
    """The output projection's result, its upcast and the loss's temporaries."""
    VISION = "vision"
    """Activations of the vision tower."""
    STEP = "step"
    """The optimizer step's temporaries."""
    CONTEXT = "context"
    """The accelerator's context, workspaces and communication buffers."""
    SLACK = "slack"
    """What the allocator holds in fragments."""


@dataclass(frozen=True, slots=True)
class Phase:
    """The memory at one moment of a step, bytes by component."""

    name: str
    components: Mapping[Component, int]

    @property
    def total(self) -> int:
        """Bytes in all."""
        return sum(self.components.values())


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a candidate needs on every rank.

    Attributes:
        phases: the moments that can be the fullest, e.g. the backward pass and the optimizer step.
        bound: what is budgeted: expected and a margin; docs/design/memory.md: how often it held.
        host: bytes of host memory that all ranks of a node need together.
        assumed: what wasn't known and what was taken instead, in words.
    """

    phases: tuple[Phase, ...]
    bound: int
    host: int
    assumed: tuple[str, ...] = ()

    @property
    def peak(self) -> Phase:
        """The fullest moment."""
        return max(self.phases, key=lambda phase: phase.total)

    @property
    def expected(self) -> int:
        """Bytes at the fullest moment."""
        return self.peak.total
