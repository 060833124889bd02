"""Shapes of models from transformers and from weights."""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safe_launch.core.errors import LaunchError
from safe_launch.core.model import Model, Weight, grouped
from safe_launch.workload.models import from_folder
from safe_launch.workload.models.from_config import (
    UnknownShapeError,
    model_from_config,
    shape,
    weights_of,
)
from safe_launch.workload.models.from_folder import described_by_transformers
from safe_launch.workload.models.on_meta import described
from safe_launch.workload.models.stack_sizes import kv_heads_of
from support.tables import table

Config = dict[str, Any]


def sizes(
    model_type: str,
    hidden: int,
    ffn: int,
    layers: int,
    heads: int,
    kv: int,
    vocab: int,
    **more: Any,
) -> Config:
    """A configuration with the usual keys."""
    return {
        "model_type": model_type,
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "vocab_size": vocab,
        **more,
    }


QWEN2_7B = sizes("qwen2", 3584, 18944, 28, 28, 4, 152064, tie_word_embeddings=False)
LATENT = {
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "q_lora_rank": None,
}
EXPERTS = {
    "moe_intermediate_size": 1408,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
}
CLIP = sizes("clip_vision_model", 1024, 4096, 24, 16, 16, 32000, image_size=336, patch_size=14)
QWEN_VIT = {"depth": 32, "embed_dim": 1280, "num_heads": 16, "in_chans": 3, "hidden_size": 3584}

PUBLISHED: dict[str, tuple[Config, int]] = {
    "Qwen2-7B": (QWEN2_7B, 7_615_616_512),
    "Qwen2.5-0.5B": (
        sizes("qwen2", 896, 4864, 24, 14, 2, 151936, tie_word_embeddings=True),
        494_032_768,
    ),
    "Qwen3-8B": (sizes("qwen3", 4096, 12288, 36, 32, 8, 151936, head_dim=128), 8_190_735_360),
    "Llama-3-8B": (sizes("llama", 4096, 14336, 32, 32, 8, 128256), 8_030_261_248),
    "Mistral-7B": ({"model_type": "mistral", "vocab_size": 32000}, 7_241_732_096),
    "Mixtral-8x7B": (
        sizes("mixtral", 4096, 14336, 32, 32, 8, 32000, num_local_experts=8),
        46_702_792_704,
    ),
    "gemma-2-2b": (sizes("gemma2", 2304, 9216, 26, 8, 4, 256000), 2_614_341_888),
    "DeepSeek-V2-Lite": (
        sizes("deepseek_v2", 2048, 10944, 27, 16, 16, 102400, **LATENT, **EXPERTS),
        15_706_484_224,
    ),
    "gpt2": (
        {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257},
        124_439_808,
    ),
    # Without a class name the bare model is built, as for embeddings.
    "bge-m3": (
        sizes("xlm-roberta", 1024, 4096, 24, 16, 16, 250002, type_vocab_size=1)
        | {"max_position_embeddings": 8194},
        567_754_752,
    ),
    "Qwen2-VL-7B": (
        {**QWEN2_7B, "model_type": "qwen2_vl", "vision_config": QWEN_VIT},
        8_291_375_616,
    ),
    "Qwen3-VL-8B": (
        {
            "model_type": "qwen3_vl",
            "text_config": sizes("qwen3_vl_text", 4096, 12288, 36, 32, 8, 151936, head_dim=128),
            "vision_config": {"out_hidden_size": 4096, "deepstack_visual_indexes": [8, 16, 24]},
        },
        8_767_123_696,
    ),
    "llava-1.5-7b": (
        {
            "model_type": "llava",
            "text_config": {"model_type": "llama", "vocab_size": 32064},
            "vision_config": CLIP,
        },
        7_063_427_072,
    ),
}
"""Published configurations, and the number of parameters on the hub."""


@functools.cache
def weights_in(name: str) -> tuple[Weight, ...]:
    """The weights that transformers builds from a published configuration."""
    return weights_of(described(PUBLISHED[name][0]))


def built(config: Config) -> Model:
    """The model that transformers builds from a configuration."""
    found = described(config)
    return shape(found["config"], weights_of(found), "x", "x")


@table("name", PUBLISHED)
def test_published_number_of_parameters(name: str) -> None:
    """A configuration alone gives every parameter."""
    config, parameters = PUBLISHED[name]
    assert built(config).parameters == parameters


def test_what_the_output_is() -> None:
    """Separate, tied to the embedding, or none."""
    models = [built(PUBLISHED[name][0]) for name in ("Qwen2-7B", "Qwen2.5-0.5B", "bge-m3")]
    outputs = [(model.vocabulary, model.tied) for model in models]
    assert outputs == [(152064, False), (151936, True), (0, False)]


def test_an_output_that_peft_copies() -> None:
    """The copy is separate even if the configuration ties it; the frozen one stays."""
    copy = Weight("lm_head.modules_to_save.weight", (8, 4))
    table = Weight("model.embed_tokens.original_module.weight", (8, 4), trained=False)
    layer = Weight("model.layers.*.self_attn.q_proj.weight", (4, 4), 2)
    for is_tied in (True, False):
        config = sizes("llama", 4, 8, 2, 1, 1, 8, tie_word_embeddings=is_tied)
        config["architectures"] = ["LlamaForCausalLM"]
        model = model_from_config(config, (table, copy, layer), "a test")
        assert model is not None
        assert (model.tied, model.vocabulary) == (False, 8)
        assert copy in model.weights
    assert table.is_embedding
    assert not copy.is_linear


def test_dropout() -> None:
    """The configuration's rates, under GPT-2's and BERT's names."""
    gpt2 = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 4}
    rates = {"resid_pdrop": 0.1, "attn_pdrop": 0.0}
    bert = sizes("bert", 8, 16, 1, 2, 2, 4, hidden_dropout_prob=0.0)
    stacks = [built(config).language for config in ({**gpt2, **rates}, bert)]
    assert [(stack.drops_hidden, stack.drops_attention) for stack in stacks] == [
        (True, False),
        (False, True),
    ]


TINY = sizes("", 64, 160, 3, 4, 2, 256, max_position_embeddings=32, pad_token_id=0)
LATENT_HEADS = {
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 12,
}
FEW = {"moe_intermediate_size": 48, "num_experts_per_tok": 2, "num_experts": 4}
OPT = {"ffn_dim": 96, "word_embed_proj_dim": 32, "do_layer_norm_before": False}
FALCON = {"num_key_value_heads": None, "intermediate_size": None}
KINDS: list[tuple[str, Config, Config]] = [
    ("llama", {}, {}),
    ("qwen3", {"head_dim": 20}, {"head_dim": 20}),
    ("gemma2", {"head_dim": 16}, {}),
    ("phi3", {}, {}),
    ("glm", {"head_dim": 16}, {}),
    ("minicpm3", LATENT_HEADS, {"kv_heads": 4, "head_dim": 12}),
    ("qwen3_moe", FEW, {"ffn": 48}),
    ("gpt2", {}, {"kv_heads": 4, "ffn": 256, "gated": False}),
    ("opt", OPT, {"kv_heads": 4, "ffn": 96, "gated": False}),
    ("bloom", {}, {"kv_heads": 4, "ffn": 256, "gated": False}),
    ("gpt_neox", {}, {"kv_heads": 4, "gated": False}),
    ("bert", {}, {"kv_heads": 2, "gated": False}),
    ("falcon", {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}, {"ffn": 256}),
    ("falcon", {**FALCON, "multi_query": True}, {"kv_heads": 1, "ffn": 256}),
]
"""Types, changes of their configuration, and the differences from `TINY`."""


@table(("model_type", "changes", "other"), KINDS)
def test_sizes_of_a_stack(model_type: str, changes: Config, other: Config) -> None:
    """Weights decide even if the configuration has other keys or meanings."""
    found = built({**TINY, **changes, "model_type": model_type}).language
    expected = {"layers": 3, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "ffn": 160}
    expected |= {"gated": model_type != "falcon", **other}
    assert {name: getattr(found, name) for name in expected} == expected


def test_stacks_of_a_vision_language_model() -> None:
    """Each tower has its own facts; its `hidden_size` is the language model's."""
    model = built(PUBLISHED["Qwen2-VL-7B"][0])
    assert model.language.prefix.endswith("layers.")
    assert (model.language.heads, model.language.kv_heads, model.language.head_dim) == (28, 4, 128)
    assert model.vision is not None
    assert model.vision.prefix.endswith("visual.blocks.")
    assert (model.vision.hidden, model.vision.patch, model.vision.merge) == (1280, 14, 2)
    assert not model.vision.gated


def test_the_installed_transformers_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a separate process without the model's code; the answer is cached."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = {**TINY, "model_type": "qwen2", "auto_map": {"AutoConfig": "own.Config"}}
    first = described_by_transformers(config)
    assert first is not None
    assert weights_of(first) == weights_of(described(config))

    def refused(*_words: object, **_options: object) -> None:
        raise OSError

    monkeypatch.setattr(subprocess, "run", refused)
    assert described_by_transformers(config) == first
    monkeypatch.setattr(from_folder.metadata, "version", lambda _: "another")
    assert described_by_transformers(config) is None


def test_a_type_that_transformers_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is unknown and isn't cached."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert described_by_transformers({**TINY, "model_type": "unheard-of"}) is None
    assert list(tmp_path.rglob("*.json")) == []


def test_numbers_that_are_part_of_a_word_stay() -> None:
    """`w1` is a name, `layers.1` a position."""
    weights = grouped(
        [(f"h.{i}.mlp.{w}.weight", (2, 3), True) for i in range(4) for w in ("w1", "w2")]
    )
    assert weights == (
        Weight("h.*.mlp.w1.weight", (2, 3), 4),
        Weight("h.*.mlp.w2.weight", (2, 3), 4),
    )


ODD = st.sampled_from(
    [None, -1, 0, 1, 3, 10**30, 0.5, 2.0, float("inf"), True, "x", "", [], [1], ["x"], {}]
)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted(PUBLISHED)),
    st.dictionaries(st.integers(0, 60), ODD, min_size=1, max_size=4),
    st.sampled_from(["", "vision_config", "text_config", "llm_config", "thinker_config"]),
    st.booleans(),
)
def test_no_configuration_raises_anything_else(
    name: str, changes: dict[int, Any], part: str, has_weights: bool
) -> None:
    """Any values give a model, or a readable error."""
    config = json.loads(json.dumps(PUBLISHED[name][0]))
    inner = config.get(part) if isinstance(config.get(part), dict) else config
    keys = [*inner, "architectures", "mlp_only_layers", "vision_config", "text_config", "num_heads"]
    for index, value in changes.items():
        inner[keys[index % len(keys)]] = value
    weights = weights_in(name) if has_weights else ()
    problem = "config.json: "
    try:
        shape(config, weights, "config.json", "config.json")
    except (LaunchError, UnknownShapeError) as error:
        problem = str(error)
    assert problem.startswith("config.json: ")


def test_more_heads_than_channels() -> None:
    """A head without a width, as in another node's odd message, has no key heads."""
    weights = [Weight("model.layers.0.self_attn.k_proj.weight", (16, 64), 1)]
    assert kv_heads_of(weights, 64, 65, 0) == 0
    assert kv_heads_of(weights, 64, 4, 16) == 1
