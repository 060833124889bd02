"""Sizes of the model that all candidates share, computed once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ...core.choices import Adapter, Engine
from ...core.model import Model
from ...core.settings import DEEPSPEED_DEFAULTS, Fact
from ...core.workload import Workload
from .adapters import trained_model


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """Model sizes that determine memory and time, in elements unless stated otherwise.

    Attributes:
        model: with adapters, frozen parts and quantized weights.
        quantized: bytes of quantized weights, which don't depend on the training's precision.
        plain: elements of the other parameters, including those of a second trained model.
        trained: elements of the trained parameters.
        largest: elements of the largest trained parameter.
        small: elements of parameters not partitioned by ZeRO-3.
        layer: elements of one layer of the language model.
        widest: elements of the largest parameter in a layer.
        head: elements of the output projection.
        head_is_trained: whether the output projection takes a gradient.
        in_fp32: elements that stay in fp32 with 16-bit weights: adapters.
        reference: elements of other frozen models: a copy of the model, a teacher.
        limit: maximum bytes a rank was observed to get; None if unknown.
        context: measured bytes outside of the training; None if unknown.
        scale: measured ratio of the memory changing within a step to the formulas' value.
        foreach: whether torch's optimizers process all parameters at once, unlike on a CPU.
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

        Hugging Face derives "auto" from the hidden width (transformers/integrations/deepspeed.py).
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

    Not modelled: ranks that share a sample or a copy of the model, and parts of FSDP.
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
    """Whether FSDP's memory is modelled: version 2 with known units, without other models.

    The storage dtype of 4-bit weights decides whether they are sharded
    (accelerate/utils/fsdp_utils.py, `fsdp2_prepare_model`).
    """
    known = workload.value(Fact.FSDP_VERSION) == 2 and workload.value(Fact.FSDP_UNITS) is not None
    beside = workload.value(Fact.TRAINED_BESIDE) or workload.value(Fact.FROZEN_BESIDE)
    quantized = any(weight.bits for weight in model.weights)
    return known and not (beside or quantized or needs_reference(workload))


def needs_reference(workload: Workload) -> bool:
    """Whether preference training has a reference copy of the model, unlike with adapters.

    trl/trainer/dpo_trainer.py disables the adapters for the reference's passes instead.
    """
    adapted = workload.value(Fact.ADAPTER) == Adapter.LORA
    return not adapted and bool(workload.value(Fact.REFERENCE_MODEL))
