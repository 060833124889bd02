"""Determines a model's trained parts: adapters, frozen towers, quantized layers.

Models peft's adapters: peft/tuners/tuners_utils.py (`check_target_module_exists`) decides which
modules get one, peft/utils/other.py (`_set_trainable`) what `modules_to_save` copies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ...core.choices import Adapter, Output
from ...core.model import Model, Weight
from ...core.settings import Fact
from ...core.workload import Workload
from .versions import is_at_least

ALL_LINEAR = "all-linear"
DEFAULT_RANK = 8
"""The default of `LoraConfig.r` (peft/tuners/lora/config.py)."""

_DEFAULT_TARGETS: dict[str, str] = {
    "q_proj,v_proj": "opt gptj gpt_neo llama llama4 mistral mixtral stablelm gemma gemma2 "
    "gemma3_text qwen2 qwen3 bart",
    "query,value": "bert roberta xlm-roberta electra layoutlm",
    "query_key_value": "chatglm bloom gpt_neox falcon RefinedWeb RefinedWebModel",
    "c_attn": "gpt2 gpt_bigcode",
    "q_proj,v_proj,fc1,fc2": "phi",
    "q,v": "t5 mt5",
    "q,v,q_proj,v_proj": "blip-2",
    "Wqkv": "mpt",
    "qkv_proj": "codegen",
    "query_proj,value_proj": "deberta-v2",
    "in_proj": "deberta",
}
"""Model types by peft's default targets for them (peft/utils/constants.py)."""

_BITS = {4: 4.5, 8: 8.0}
"""Bits per element with scales: NF4 has 32 scale bits per 64 elements."""
_CALIBRATED_BITS = 20 / 128
"""Additional bits per element in GPTQ and AWQ: a 16-bit scale and a 4-bit zero per 128 elements."""

_PROJECTORS = {
    "aligner",
    "connector",
    "deepstack_merger_list",
    "merger",
    "mlp1",
    "mm_projector",
    "multi_modal_projector",
    "resampler",
}
_WRAPPERS = ("base_model", "model", "module", "thinker", "transformer")
_FUSED_EXPERTS = (".experts.gate_up_proj", ".experts.down_proj")
_GATE_AND_UP = (".gate_proj", ".up_proj", ".w1", ".w3")
_REGULAR = re.compile(r"[\\^$*+?()\[\]{}|]")
_TRANSPOSED = ("gpt2", "openai-gpt")
"""Model types whose linear layers store their weights as [inputs, outputs]."""


def default_targets(model_type: str) -> str | None:
    """The modules that peft gives adapters by default; None if peft requires names."""
    for targets, types in _DEFAULT_TARGETS.items():
        if model_type in types.split():
            return targets
    return None


def assumed(workload: Workload) -> tuple[str, ...]:
    """Assumptions of `trained_model` on unstated values, as phrases."""
    model = workload.model
    if model is None or not _gets_adapters(workload, model):
        return ()
    notes = []
    if workload.value(Fact.LORA_RANK) is None:
        notes.append(f"rank of the adapters: {DEFAULT_RANK}, peft's default")
    if workload.value(Fact.LORA_TARGETS) is None:
        targets = default_targets(model.model_type)
        whose = "all linear layers" if targets is None else f"{targets}, peft's default"
        notes.append(f"modules with adapters: {whose}")
    return tuple(notes)


def trained_model(workload: Workload) -> Model | None:
    """The model as trained in this run; None if the model is unknown.

    A model reported by a worker with adapters isn't changed.
    """
    model = workload.model
    if model is None or _has_adapters(model):
        return model
    if workload.value(Fact.OUTPUT) == Output.SCORES:
        model = replace(
            model,
            vocabulary=0,
            weights=tuple(weight for weight in model.weights if not weight.is_output),
        )
    model = _quantized(model, workload)
    if _gets_adapters(workload, model):
        return _adapted(model, workload)
    frozen = _frozen_parts(workload)
    weights = (
        replace(weight, trained=weight.trained and part_of(model, weight) not in frozen)
        for weight in model.weights
    )
    return replace(model, weights=tuple(weights))


def part_of(model: Model, weight: Weight) -> str:
    """The part of a weight: `vision`, `projector` or `language`."""
    if model.vision is None:
        return "language"
    if _PROJECTORS & set(weight.name.split(".")):
        return "projector"
    parts = model.vision.prefix.split(".")
    tower = next(part for part in parts if part not in _WRAPPERS)
    return "vision" if tower in weight.name.split(".") else "language"


def _has_adapters(model: Model) -> bool:
    return any(".lora_" in weight.name for weight in model.weights)


def _gets_adapters(workload: Workload, model: Model) -> bool:
    return workload.value(Fact.ADAPTER) == Adapter.LORA.value and not _has_adapters(model)


def _frozen_parts(workload: Workload) -> set[str]:
    """Parts frozen by the script."""
    facts = (("language", Fact.LANGUAGE_TRAINED), ("vision", Fact.VISION_TRAINED))
    return {part for part, fact in facts if workload.value(fact) is False}


def _quantized(model: Model, workload: Workload) -> Model:
    """Quantizes the model's linear layers, except the tower of a calibrated model."""
    bits = workload.value(Fact.QUANTIZATION_BITS)
    if not isinstance(bits, int) or bits not in _BITS:
        return model
    stored = any(weight.bits is not None for weight in model.weights)
    calibrated = bool(workload.value(Fact.CALIBRATED))
    within = model.language.prefix if stored or calibrated else ""
    held = bits + _CALIBRATED_BITS if calibrated else _BITS[bits]
    weights = (
        replace(weight, bits=held, trained=False)
        if weight.is_linear and weight.bits is None and weight.name.startswith(within)
        else weight
        for weight in model.weights
    )
    return replace(model, weights=tuple(weights))


def _adapted(model: Model, workload: Workload) -> Model:
    """Adds adapters to the model and freezes everything else."""
    rank = workload.value(Fact.LORA_RANK)
    rank = rank if isinstance(rank, int) else DEFAULT_RANK
    targets = workload.value(Fact.LORA_TARGETS) or default_targets(model.model_type) or ALL_LINEAR
    targets = str(targets)
    saved = _listed(str(workload.value(Fact.LORA_SAVED) or ""))
    frozen = _frozen_parts(workload)
    if ALL_LINEAR in _listed(targets) and "vision" in frozen:
        frozen = {*frozen, "projector"}  # LLaMA-Factory and ms-swift freeze it as well
    fused = is_at_least(workload, "transformers", 5, 0)
    added: list[Weight] = []
    for weight in model.weights:
        if owner := _owner(weight.name, saved):
            added.append(_copy(weight, weight.name, owner))
            continue
        if not _is_expression(targets) and part_of(model, weight) in frozen:
            continue
        if weight.name.endswith(_FUSED_EXPERTS) and len(weight.shape) == 3:
            added += _expert_adapters(weight, rank, targets)
            continue
        count = _matches(weight, targets)
        if count:
            transposed = model.model_type in _TRANSPOSED
            twice = fused and ".experts." in weight.name and weight.module.endswith(_GATE_AND_UP)
            added += _adapter(weight, rank, count, transposed=transposed, twice=twice)
    added += _saved_output(model, saved)
    base = (replace(weight, trained=False) for weight in model.weights)
    return replace(model, weights=(*base, *added))


def _listed(text: str) -> tuple[str, ...]:
    """Splits names at commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _is_expression(targets: str) -> bool:
    """Whether the targets are a regular expression, not names."""
    return bool(_REGULAR.search(targets))


def _matches(weight: Weight, targets: str) -> int:
    """Number of a weight's equal modules with an adapter."""
    if not weight.name.endswith(".weight") or len(weight.shape) < 2:
        return 0
    names = _listed(targets)
    if ALL_LINEAR in names and weight.is_linear:
        return weight.count
    module = weight.module
    if _is_expression(targets):
        return _matched_layers(module, targets, weight.count)
    if any(module == name or module.endswith(f".{name}") for name in names):
        return weight.count
    if any(re.search(r"\.\d+(\.|$)", name) for name in names):
        return sum(
            _matched_layers(module, rf"(.*\.)?{re.escape(name)}", weight.count) for name in names
        )
    return 0


def _matched_layers(module: str, pattern: str, count: int) -> int:
    """Number of modules that match an expression, with each layer number filled in."""
    try:
        expression = re.compile(pattern)
    except re.error:
        return 0
    stars = module.count("*")
    if stars == 1:
        return sum(
            1 for index in range(count) if expression.fullmatch(module.replace("*", str(index)))
        )
    # The experts per layer are unknown: the first expert represents all.
    return count if expression.fullmatch(module.replace("*", "0")) else 0


def _expert_adapters(weight: Weight, rank: int, targets: str) -> Iterator[Weight]:
    """Adapters of all experts of a layer, one parameter in transformers 5.

    The adapter of the fused gate and up projection has twice the rank
    (peft/utils/transformers_weight_conversion.py).
    """
    parts = ("gate_proj", "up_proj") if "gate_up" in weight.name else ("down_proj",)
    if targets.lower() != ALL_LINEAR and not set(parts) <= set(_listed(targets)):
        return
    experts, outputs, inputs = weight.shape
    width = rank * len(parts) * experts
    yield Weight(f"{weight.name}.lora_A.weight", (width, inputs), weight.count)
    yield Weight(f"{weight.name}.lora_B.weight", (outputs, width), weight.count)


def _adapter(
    weight: Weight, rank: int, count: int, *, transposed: bool, twice: bool
) -> Iterator[Weight]:
    """Both matrices of an adapter; with `twice`, of a fused pair."""
    if weight.is_embedding:
        entries, width = weight.shape
        yield Weight(f"{weight.module}.lora_embedding_A", (rank, entries), count)
        yield Weight(f"{weight.module}.lora_embedding_B", (width, rank), count)
        return
    outputs, *inputs = weight.shape
    if transposed and len(inputs) == 1:
        outputs, inputs = inputs[0], [outputs]
    yield Weight(f"{weight.module}.lora_A.weight", (rank, *inputs), count)
    inner = (2 * rank if twice else rank, *(1 for _ in inputs[1:]))
    yield Weight(f"{weight.module}.lora_B.weight", (outputs, *inner), count)


def _owner(name: str, saved: tuple[str, ...]) -> str:
    """The outermost fully trained module of a weight; empty if none."""
    parts = name.split(".")[:-1]
    for end in range(1, len(parts) + 1):
        module = ".".join(parts[:end])
        if module.endswith(saved):
            return module
    return ""


def _copy(weight: Weight, name: str, owner: str) -> Weight:
    """The trained copy of a weight of this name in a fully trained module."""
    rest = name.removeprefix(f"{owner}.")
    return replace(weight, name=f"{owner}.modules_to_save.{rest}", trained=True, bits=None)


def _saved_output(model: Model, saved: tuple[str, ...]) -> Iterator[Weight]:
    """The trained copy of an output projection tied to the embedding."""
    if not model.tied or not saved or not "lm_head".endswith(saved):
        return
    tables = [weight for weight in model.weights if weight.is_embedding and weight.count == 1]
    if tables:
        largest = max(tables, key=lambda weight: weight.size)
        yield _copy(largest, "lm_head.weight", "lm_head")
