"""FSDP2's units of a model, gathered together, in elements.

Every parameter of a unit is padded to a multiple of the N ranks in its first dimension. The
sources are torch/distributed/fsdp/_fully_shard/_fsdp_param.py of torch 2.13, and
accelerate/utils/fsdp_utils.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ...core.choices import Framework, Units
from ...core.model import Weight
from ...core.settings import Fact
from .model_sizes import ModelSizes
from .versions import is_at_least

CARVED_SINCE = (1, 14)
"""First accelerate version with separate units for embedding and head (`fsdp2_prepare_model`)."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Parameters gathered together, in elements.

    Attributes:
        gathered: U, all parameters.
        reduced: Ut, the trained parameters.
        gradients: trained parameters without padding.
    """

    gathered: int = 0
    reduced: int = 0
    gradients: int = 0

    def __add__(self, other: Unit) -> Unit:
        """Both together."""
        return Unit(
            self.gathered + other.gathered,
            self.reduced + other.reduced,
            self.gradients + other.gradients,
        )

    def times(self, count: int) -> Unit:
        """The sum of `count` such units."""
        return Unit(self.gathered * count, self.reduced * count, self.gradients * count)


@dataclass(frozen=True, slots=True)
class Division:
    """A model's units.

    Attributes:
        root: parameters outside other units; gathered from the first forward to the last backward.
        layer: the largest layer.
        layers: number of layers that are units; 0 if they belong to the root.
        embedding: the input embedding if it is a separate unit.
        head: the output projection if it is a unit, which stays gathered after its forward pass.
        tied: whether the head is the embedding, and so stays gathered as long as the root.
        carved: whether accelerate makes head and embedding units.
    """

    root: Unit
    layer: Unit
    layers: int
    embedding: Unit
    head: Unit
    tied: bool
    carved: bool

    @property
    def all(self) -> Unit:
        """The whole model."""
        return self.root + self.layer.times(self.layers) + self.embedding + self.head


def division_of(sizes: ModelSizes, world: int) -> Division:
    """The units of a model: layers if any, and accelerate's units of the rest."""
    model, workload = sizes.model, sizes.workload
    stacks = [model.language, *([model.vision] if model.vision else [])]
    if workload.value(Fact.FSDP_UNITS) == Units.WHOLE:
        stacks = []
    prefixes = tuple(stack.prefix for stack in stacks)
    outside = [weight for weight in model.weights if not weight.name.startswith(prefixes)]
    layers = [_unit(model.within(stack), world, stack.layers) for stack in stacks]
    layer = max(layers, key=lambda unit: unit.gathered, default=Unit())
    within = [weight for weight in model.weights if weight not in outside]
    count = _unit(within, world).gathered / layer.gathered if layer.gathered else 0
    carved = workload.framework in (Framework.TRANSFORMERS, Framework.ACCELERATE) and is_at_least(
        workload, "accelerate", *CARVED_SINCE
    )
    heads = [weight for weight in outside if weight.is_output]
    tables = [weight for weight in outside if weight.is_embedding]
    first = [max(tables, key=lambda weight: weight.size)] if tables else []
    tied = carved and not heads
    if not carved:
        heads, first = [], []
    elif tied:
        heads, first = first, []
    rest = [weight for weight in outside if weight not in (*heads, *first)]
    return Division(
        root=_unit(rest, world),
        layer=layer,
        layers=round(count),
        embedding=_unit(first, world),
        head=_unit(heads, world),
        tied=tied,
        carved=carved,
    )


def _unit(weights: Iterable[Weight], world: int, share: int = 1) -> Unit:
    """One of `share` equal units of these weights."""
    gathered = reduced = gradients = 0
    for weight in weights:
        rows = weight.shape[0] if weight.shape else 1
        filled = weight.total // rows * (math.ceil(rows / world) * world)
        gathered += filled
        if weight.trained:
            reduced += filled
            gradients += weight.total
    return Unit(gathered // share, reduced // share, gradients // share)
