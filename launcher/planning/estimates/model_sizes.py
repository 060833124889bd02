"""Sizes of the model that all candidates share, computed once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...core.choices import Adapter, Engine
from ...core.model import Model
from ...core.settings import Fact
from ...core.workload import Workload
from .adapters import trained_model

DEEPSPEED_DEFAULTS: Mapping[Fact, int] = {
    Fact.REDUCE_BUCKET: 500_000_000,
    Fact.PREFETCH_BUCKET: 50_000_000,
    Fact.PERSISTENCE_THRESHOLD: 100_000,
    Fact.MAX_LIVE_PARAMETERS: 1_000_000_000,
    Fact.MAX_REUSE_DISTANCE: 1_000_000_000,
    Fact.SUB_GROUP: 1_000_000_000,
}
"""Elements, from deepspeed/runtime/zero/config.py."""


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """Sizes of the model that memory and time depend on, in elements unless stated otherwise.

    Attributes:
        workload: the known facts of the training.
        model: with adapters, frozen parts and quantized weights.
        quantized: bytes of quantized weights, which don't depend on the training's precision.
        plain: elements of the other parameters, with those of a model that is trained in addition.
        trained: elements of those that are trained.
        largest: elements of the largest trained parameter.
        small: elements of the parameters that ZeRO-3 doesn't partition.
        layer: elements of one layer of the language model.
        widest: elements of the largest parameter in a layer.
        head: elements of the output projection.
        head_is_trained: whether it takes a gradient.
        in_fp32: elements that stay in fp32 with 16-bit weights: adapters.
        reference: elements of frozen models that are also held: a copy of the model, a teacher.
        limit: bytes that a rank was observed to get at most; None if unknown.
        context: measured bytes that aren't the training's; None if unknown.
        scale: measured ratio of the memory that changes in a step to the formulas' value.
        foreach: whether torch's optimizers take all parameters at once, as they don't on a CPU.
    """

    workload: Workload
    model: Model
    quantized: int
    plain: int
    trained: int
    largest: int
    small: int
    layer: int
    widest: int
    head: int
    head_is_trained: bool
    in_fp32: int
    reference: int
    limit: int | None = None
    context: int | None = None
    scale: float = 1.0
    foreach: bool = True

    def elements(self, fact: Fact) -> int:
        """A size in DeepSpeed's configuration, in elements.

        Hugging Face fills in "auto" by the hidden width (transformers/integrations/deepspeed.py).
        """
        stated = self.workload.value(fact)
        if stated is not None:
            return int(stated)
        width = self.model.language.hidden
        if self.workload.value(Fact.AUTO_BUCKETS):
            filled = {
                Fact.REDUCE_BUCKET: width * width,
                Fact.PREFETCH_BUCKET: int(0.9 * width * width),
                Fact.PERSISTENCE_THRESHOLD: 10 * width,
            }
            if fact in filled:
                return filled[fact]
        return DEEPSPEED_DEFAULTS[fact]


def model_sizes_of(workload: Workload) -> ModelSizes | None:
    """The sizes of a workload's model; None if the model is unknown or not modelled.

    Ranks that share a sample or a copy of the model aren't modelled, and not all of FSDP is.
    """
    model = trained_model(workload)
    if model is None or workload.value(Fact.MODEL_PARALLEL):
        return None
    if workload.engine is Engine.FSDP and not _is_modelled(workload, model):
        return None
    plain = [weight for weight in model.weights if weight.bits is None]
    trained = [weight for weight in plain if weight.trained]
    beside = int(workload.value(Fact.TRAINED_BESIDE) or 0)
    copied = model.parameters if needs_reference(workload) else 0
    sizes = ModelSizes(
        workload=workload,
        model=model,
        quantized=sum(
            math.ceil(weight.total * weight.bits / 8) for weight in model.weights if weight.bits
        ),
        plain=sum(weight.total for weight in plain) + beside,
        trained=sum(weight.total for weight in trained) + beside,
        largest=max((weight.size for weight in trained), default=0),
        small=0,
        layer=sum(weight.total for weight in model.within(model.language)) // model.language.layers,
        widest=max((weight.size for weight in model.within(model.language)), default=0),
        head=model.vocabulary * model.language.hidden,
        head_is_trained=any(
            weight.trained and model.vocabulary in weight.shape for weight in plain
        ),
        in_fp32=sum(weight.total for weight in trained if ".lora_" in weight.name),
        reference=copied + int(workload.value(Fact.FROZEN_BESIDE) or 0),
        limit=min((measured.limit for measured in workload.measured), default=None),
    )
    threshold = sizes.elements(Fact.PERSISTENCE_THRESHOLD)
    return replace(sizes, small=sum(weight.total for weight in plain if weight.size < threshold))


def _is_modelled(workload: Workload, model: Model) -> bool:
    """Whether FSDP's memory is: version 2 with known units, without other models beside.

    Whether 4-bit weights are sharded depends on the type that they are stored in
    (accelerate/utils/fsdp_utils.py, `fsdp2_prepare_model`).
    """
    known = workload.value(Fact.FSDP_VERSION) == 2 and workload.value(Fact.FSDP_UNITS) is not None
    beside = workload.value(Fact.TRAINED_BESIDE) or workload.value(Fact.FROZEN_BESIDE)
    quantized = any(weight.bits for weight in model.weights)
    return known and not (beside or quantized or needs_reference(workload))


def needs_reference(workload: Workload) -> bool:
    """Whether preference training holds a reference copy of the model; not with adapters.

    trl/trainer/dpo_trainer.py: the adapters are switched off for the reference's passes.
    """
    adapted = workload.value(Fact.ADAPTER) == Adapter.LORA
    return not adapted and bool(workload.value(Fact.REFERENCE_MODEL))
