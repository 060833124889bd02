"""FSDP2's memory at each moment: units, shards, gathered units, unreduced gradients.

A unit's parameters are gathered together; each is padded to a multiple of the N ranks in its first
dimension. Notation: U elements of a unit on N ranks, Ut of those that are trained; bytes of an
element: e in the computation, m of a shard, r of a reduction. The sources are
torch/distributed/fsdp/_fully_shard/ (_fsdp_param.py, _fsdp_param_group.py, _fsdp_collectives.py) of
torch 2.13, and accelerate/utils/fsdp_utils.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...core.choices import Framework, Offload, Precision, Units
from ...core.model import Weight
from ...core.settings import Fact, Setting
from .estimate import Component
from .model_sizes import ModelSizes
from .training_states import (
    STATE_BYTES,
    Candidate,
    States,
    accumulates,
    element_bytes,
    loaded_bytes,
    optimizer_of,
    step_bytes,
)
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


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes per element in the computation, of a shard, and in a reduction."""

    computed: int
    shard: int
    reduced: int


def fsdp_states(sizes: ModelSizes, candidate: Candidate, world: int) -> States:
    """States of one rank under FSDP2.

    - shards, on which the optimizer steps, in m; frozen ones as they were loaded
    - gradients and the optimizer's states in the type of the shards; a unit's gradients are one
      tensor (`foreach_reduce`)
    - the first rank's part of every parameter is a whole number of rows (`_init_sharded_param`)
    - offloaded, all that is sharded is in host memory, and a gradient goes there once it is reduced
    """
    parts, bytes_of = division_of(sizes, world), bytes_of_elements(sizes, candidate)
    trained, shard = parts.all.reduced / world, bytes_of.shard
    frozen = loaded_bytes(sizes.workload) * (parts.all.gathered - parts.all.reduced) / world
    state = STATE_BYTES[optimizer_of(sizes.workload)]
    parameters = shard * trained + frozen
    optimizer = (state / 4 * shard if state >= 4 else state) * trained
    grads = shard * trained
    offloaded = _is_offloaded(candidate)
    return States(
        parameters=0.0 if offloaded else parameters,
        optimizer=0.0 if offloaded else optimizer,
        at_step=0.0 if offloaded else grads * (1 + step_bytes(sizes) / 4),
        host=parameters + optimizer + grads if offloaded else 0.0,
        moments=_moments_of(sizes, parts, bytes_of, candidate, world),
    )


def _moments_of(
    sizes: ModelSizes, parts: Division, bytes_of: Bytes, candidate: Candidate, world: int
) -> Mapping[str, Mapping[Component, int]]:
    """A rank's memory without activations, at each moment of a step.

    - a unit is gathered into one flat tensor and copied out of it: e U each. The flat one is held
      until the next unit's is there, in the backward pass until the copy is made
      (`wait_for_unshard`)
    - in the backward pass the next unit's flat tensor is there while a unit is at work
      (`_backward_prefetch`); the root's output comes first, so it gathers the last layer during the
      loss
    - a unit's gradients, e a piece, are reduced at the end of its backward pass, from a flat tensor
      of r Ut that is held until the next unit's reduction (`post_backward`); units whose inputs
      take no gradient, the embedding and the root, come last of all
    - without resharding all units stay gathered from their forward to their backward pass
    """
    e, r = bytes_of.computed, bytes_of.reduced
    root, layer, head, first = parts.root, parts.layer, parts.head, parts.embedding
    resharded = candidate.get(Setting.RESHARD_AFTER_FORWARD, True) is not False
    hold = _Held(parts.all, bytes_of, candidate, world, deferred=is_deferred(sizes))
    nothing, layers = Unit(), layer.times(parts.layers)
    ending = head if parts.tied else nothing
    between = root + ending
    if not resharded:
        between += first
    at_turn = between + (nothing if parts.tied else head) + (nothing if resharded else layers)
    in_layer = between + (layer.times(2) if resharded else layers)
    others = layer.times(max(parts.layers - 1, 0))
    later = layer.times(max(parts.layers - 2, 0))
    in_next = between + (layer.times(2) if resharded else others)
    in_first = root + ending + layer + first
    ahead = layer if resharded else nothing
    flat = layer if parts.layers else root
    if parts.carved and not (parts.tied and parts.layers):
        flat = head
    reduced = nothing if parts.tied else head
    outside = root + ending + first
    late = sizes.head if sizes.head_is_trained and not reduced.gradients else 0
    out = reduced.gradients or late
    passed = 0 if parts.layers else max(root.gradients - late - sizes.layer, 0)
    largest = min(sizes.largest, parts.all.gradients)
    last = max((root, ending, first), key=lambda unit: unit.reduced)
    part = 1 / world if r == bytes_of.shard else (1 + bytes_of.shard / r) / world
    gathered, gradients, buckets = Component.GATHERED, Component.GRADIENTS, Component.BUCKETS
    moments: dict[str, dict[Component, float]] = {
        "forward": {
            gathered: e * (at_turn + flat).gathered,
            gradients: hold.done(nothing),
        },
        "loss": {
            gathered: e * (at_turn + (nothing if parts.carved else ahead)).gathered,
            gradients: hold.done(nothing),
        },
        "output projection": {
            gathered: e * (at_turn + ahead).gathered,
            gradients: hold.done(nothing) + hold.new(out),
        },
    }
    for name, units, done, passed_by, bucket in (
        ("last layer", in_layer, reduced, 0, reduced),
        ("next layer", in_next, reduced + layer, 0, layer),
        ("second layer", between + layer.times(2), reduced + later, 0, layer),
        ("first layer", in_first, reduced + others, passed, layer),
    ):
        for moment, new in (
            (name, hold.new(late + passed_by) + e * largest),
            (f"end of {name}", hold.new(late + layer.gradients)),
        ):
            moments[moment] = {
                gathered: e * units.gathered,
                gradients: hold.done(done) + new,
                buckets: r * bucket.reduced,
            }
    moments |= {
        "end of backward": {
            gathered: e * outside.gathered,
            gradients: hold.done(reduced + layers) + hold.new(outside.gradients),
            buckets: r * layer.reduced,
        },
        "last reduction": {
            gradients: hold.done(reduced + layers) + hold.new(outside.gradients),
            buckets: r * last.reduced * (1 + part),
        },
    }
    return {
        name: {component: int(size) for component, size in held.items()}
        for name, held in moments.items()
    }


@dataclass(frozen=True, slots=True)
class _Held:
    """Bytes of gradients during a micro batch.

    accelerate reduces only the gradients of a step's last micro batch, and keeps the others' in
    full, in r (`no_sync`, `set_requires_gradient_sync`). A plain script reduces each.
    """

    all: Unit
    bytes_of: Bytes
    candidate: Candidate
    world: int
    deferred: bool

    def done(self, units: Unit) -> float:
        """Gradients of earlier micro batches, and this one's reduced shards."""
        shard = 0.0 if _is_offloaded(self.candidate) else self.bytes_of.shard / self.world
        if not accumulates(self.candidate):
            return shard * units.reduced
        if self.deferred:
            waiting = self.all.gradients - units.gradients
            return shard * units.reduced + self.bytes_of.reduced * waiting
        return shard * self.all.reduced

    def new(self, elements: int) -> float:
        """Unreduced gradients; autograd adds to those of earlier micro batches."""
        added = accumulates(self.candidate) and self.deferred
        same = self.bytes_of.computed == self.bytes_of.reduced
        return 0.0 if added and same else self.bytes_of.computed * elements


def bytes_of_elements(sizes: ModelSizes, candidate: Candidate) -> Bytes:
    """Dtypes of computation, shards and reduction; adapters are fp32 unless cast."""
    workload, computed = sizes.workload, element_bytes(candidate)
    master = workload.value(Fact.MASTER_PRECISION)
    loaded = 4 if sizes.in_fp32 else loaded_bytes(workload)
    shard = loaded if master is None else _bytes(master)
    reduced = workload.value(Fact.REDUCE_PRECISION)
    return Bytes(computed, shard, computed if reduced is None else _bytes(reduced))


def _is_offloaded(candidate: Candidate) -> bool:
    """Whether the shards are in host memory."""
    return candidate.get(Setting.OFFLOAD, Offload.NONE) != Offload.NONE


def is_deferred(sizes: ModelSizes) -> bool:
    """Whether only a step's last micro batch reduces gradients, as in accelerate."""
    return sizes.workload.framework in (Framework.TRANSFORMERS, Framework.ACCELERATE)


def _bytes(precision: object) -> int:
    return 4 if precision == Precision.FP32 else 2
