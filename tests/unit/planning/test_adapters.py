"""Trained parameters: peft's adapters, frozen towers, quantized layers."""

from __future__ import annotations

from typing import Any

import pytest
from safe_launch.core.model import Model, Weight
from safe_launch.core.settings import Fact, Value
from safe_launch.core.workload import Known, Origin, Workload
from safe_launch.planning.estimates.adapters import (
    assumed,
    default_targets,
    part_of,
    trained_model,
)
from safe_launch.workload.models import on_meta
from safe_launch.workload.models.from_config import model_from_config, weights_of
from support.lazy import Lazy
from support.models import model_of

auto = Lazy("transformers")
constants = Lazy("peft.utils.constants")
peft = Lazy("peft")

Config = dict[str, Any]

TEXT = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
}
TIED = {**TEXT, "tie_word_embeddings": True}
EXPERTS = {**TEXT, "moe_intermediate_size": 48, "num_experts": 4, "num_experts_per_tok": 2}
GPT2 = {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 256, "n_positions": 32}
VISION = {
    "text_config": TEXT,
    "vision_config": {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2},
}


def described(model_type: str, config: Config) -> Model:
    """The model that transformers builds from a configuration."""
    found = on_meta.described({**config, "model_type": model_type})
    model = model_from_config(found["config"], weights_of(found), "x")
    assert model is not None
    return model


def workload(model: Model, facts: dict[Fact, Value], transformers: str = "5.0") -> Workload:
    """A workload with facts stated by a flag."""
    known = {name: Known(value, Origin.FLAG, "--flag") for name, value in facts.items()}
    return Workload(known=known, model=model, versions={"transformers": transformers})


def trained(model: Model, facts: dict[Fact, Value], transformers: str = "5.0") -> Model:
    """The model as trained under these facts."""
    found = trained_model(workload(model, facts, transformers))
    assert found is not None
    return found


def lora(**facts: Value) -> dict[Fact, Value]:
    """The facts of adapters of rank 4."""
    named = {Fact(f"lora_{name}"): value for name, value in facts.items()}
    return {Fact.ADAPTER: "lora", Fact.LORA_RANK: 4, **named}


@pytest.mark.parametrize(
    ("model_type", "config", "targets", "saved"),
    [
        ("qwen2", TEXT, ["q_proj", "v_proj"], None),
        ("qwen2", TEXT, "all-linear", None),
        ("qwen2", TEXT, None, None),
        ("qwen2", TEXT, r".*layers\.(0|2)\.mlp\.(up|down)_proj", None),
        ("qwen2", TEXT, ["model.layers.1.self_attn.q_proj", "k_proj"], None),
        ("qwen2", TEXT, ["q_proj", "embed_tokens"], ["lm_head"]),
        ("qwen2", TIED, ["q_proj"], ["lm_head", "embed_tokens"]),
        ("gpt2", GPT2, None, None),
        ("gpt2", GPT2, "all-linear", None),
        ("qwen2_vl", VISION, "all-linear", None),
        ("qwen2_vl", VISION, ["q_proj", "proj"], ["merger"]),
        ("qwen2_vl", VISION, r".*visual.*\.(qkv|fc1)", None),
        ("qwen3_moe", EXPERTS, "all-linear", None),
        ("qwen3_moe", EXPERTS, ["q_proj", "gate_proj", "up_proj", "down_proj"], None),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_adapters_are_those_of_peft(
    model_type: str, config: Config, targets: Any, saved: list[str] | None
) -> None:
    """Total and trained parameters are equal."""
    kind = auto.AutoModelForImageTextToText if "vl" in model_type else auto.AutoModelForCausalLM
    live = kind.from_config(auto.AutoConfig.for_model(model_type, **config))
    adapted = peft.get_peft_model(
        live, peft.LoraConfig(r=4, target_modules=targets, modules_to_save=saved)
    )
    parameters = list(adapted.parameters())
    facts = lora(saved=",".join(saved or []))
    if targets is not None:
        facts[Fact.LORA_TARGETS] = targets if isinstance(targets, str) else ",".join(targets)
    model = trained(described(model_type, config), facts)
    assert model.trained == sum(one.numel() for one in parameters if one.requires_grad)
    assert model.parameters == sum(one.numel() for one in parameters)


def test_adapters_are_named_as_in_peft() -> None:
    """One pair for all layers, beside the frozen weight."""
    model = trained(described("qwen2", TEXT), lora(targets="k_proj"))
    added = [weight for weight in model.weights if weight.trained]
    module = "model.layers.*.self_attn.k_proj"
    assert added == [
        Weight(f"{module}.lora_A.weight", (4, 64), 3),
        Weight(f"{module}.lora_B.weight", (32, 4), 3),
    ]
    assert added == [weight for weight in trained(model, lora()).weights if weight.trained]


def test_experts_are_modules_of_their_own_before_transformers_5() -> None:
    """Each expert has an adapter of the requested rank."""
    facts = lora(targets="up_proj")
    model = trained(model_of({**EXPERTS, "model_type": "qwen3_moe"}), facts, "4.57.1")
    assert model.trained == 3 * 4 * 4 * (64 + 48)


def test_default_targets_are_those_of_peft() -> None:
    """The same modules or none: there are no guesses."""
    theirs = constants.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
    ours = {kind: default_targets(kind) for kind in (*theirs, "unheard-of")}
    known = {kind: sorted(targets.split(",")) for kind, targets in ours.items() if targets}
    assert known == {kind: sorted(theirs[kind]) for kind in known}
    common = {"llama", "qwen2", "qwen3", "gemma2", "mistral", "chatglm", "bert"}
    assert common & theirs.keys() <= known.keys()


def test_what_is_assumed_is_said() -> None:
    """Unstated rank and modules get a note."""
    model = described("qwen2", TEXT)
    notes = assumed(workload(model, {Fact.ADAPTER: "lora"}))
    assert notes == (
        "rank of the adapters: 8, peft's default",
        "modules with adapters: q_proj,v_proj, peft's default",
    )
    assert assumed(workload(model, lora(targets="q_proj"))) == ()
    assert assumed(workload(model, {})) == ()


@pytest.mark.parametrize(("bits", "stored"), [(4, 4.5), (8, 8.0)])
def test_quantized_layers_are_the_linear_ones(bits: int, stored: float) -> None:
    """Embedding, output projection and norms keep their type."""
    model = trained(described("qwen2", TEXT), {**lora(), Fact.QUANTIZATION_BITS: bits})
    held = {weight.name: weight.bits for weight in model.weights if not weight.trained}
    assert held["model.layers.*.mlp.up_proj.weight"] == stored
    assert held["model.embed_tokens.weight"] is None
    assert held["lm_head.weight"] is None
    assert held["model.layers.*.input_layernorm.weight"] is None
    assert all(weight.bits is None for weight in model.weights if weight.trained)


def test_frozen_towers() -> None:
    """An untrained tower is frozen, its projector isn't."""
    model = described("qwen2_vl", VISION)
    only_language = trained(model, {Fact.VISION_TRAINED: False})
    parts = {part_of(model, weight) for weight in only_language.weights if weight.trained}
    assert parts == {"language", "projector"}
    only_vision = trained(model, {Fact.LANGUAGE_TRAINED: False})
    parts = {part_of(model, weight) for weight in only_vision.weights if weight.trained}
    assert parts == {"vision", "projector"}
    assert trained(model, {}) == model


def test_frozen_towers_get_no_adapters_but_by_their_name() -> None:
    """`all-linear` skips a frozen tower and its projector; a matching regex doesn't.

    So do LLaMA-Factory 0.9.5 (model/model_utils/visual.py) and ms-swift 4.6 by default.
    """
    model = described("qwen2_vl", VISION)
    frozen = trained(model, {**lora(targets="all-linear"), Fact.VISION_TRAINED: False})
    added = [weight.name for weight in frozen.weights if ".lora_A." in weight.name]
    assert any(".language_model.layers." in name for name in added)
    assert not any(".visual." in name for name in added)
    named = trained(model, {**lora(targets=r".*visual\..*fc1"), Fact.VISION_TRAINED: False})
    assert named.trained == 2 * 4 * (32 + 128)


def test_without_a_model_there_is_none() -> None:
    """An unknown model stays unknown."""
    assert trained_model(Workload()) is None
