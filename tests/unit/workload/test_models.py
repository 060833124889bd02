"""Shapes of models that follow from a configuration, against published sizes and transformers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safe_launch.core.errors import LaunchError
from safe_launch.core.model import Model, Weight, grouped
from safe_launch.workload.models.from_config import model_from_config
from support.lazy import Lazy
from support.tables import table

torch = Lazy("torch")
transformers = Lazy("transformers")

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
}
GLM = {
    "model_type": "chatglm",
    "hidden_size": 4096,
    "ffn_hidden_size": 13696,
    "num_attention_heads": 32,
    "kv_channels": 128,
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "add_qkv_bias": True,
    "add_bias_linear": False,
}
INTERN_VIT = sizes("intern_vit_6b", 1024, 4096, 24, 16, 16, 1, image_size=448, patch_size=14) | {
    "norm_type": "layer_norm",
    "qkv_bias": True,
    "qk_normalization": False,
}
SIGLIP = sizes("siglip", 1152, 4304, 27, 16, 16, 1, image_size=980, patch_size=14)
CLIP = sizes("clip_vision_model", 1024, 4096, 24, 16, 16, 32000, image_size=336, patch_size=14)
QWEN_VL_VIT = {
    "heads": 16,
    "image_size": 448,
    "layers": 48,
    "mlp_ratio": 4.9231,
    "output_dim": 4096,
    "patch_size": 14,
    "width": 1664,
}
QWEN_VIT = {"depth": 32, "embed_dim": 1280, "num_heads": 16, "in_chans": 3, "hidden_size": 3584}

PUBLISHED: dict[str, tuple[Config, int]] = {
    "Qwen2-7B": (QWEN2_7B, 7_615_616_512),
    "Qwen2.5-0.5B": (
        sizes("qwen2", 896, 4864, 24, 14, 2, 151936, tie_word_embeddings=True),
        494_032_768,
    ),
    "Qwen3-8B": (sizes("qwen3", 4096, 12288, 36, 32, 8, 151936, head_dim=128), 8_190_735_360),
    "Qwen-7B": (
        sizes("qwen", 4096, 22016, 32, 32, 32, 151936, kv_channels=128, no_bias=True),
        7_721_324_544,
    ),
    "Llama-3-8B": (sizes("llama", 4096, 14336, 32, 32, 8, 128256), 8_030_261_248),
    "Mistral-7B": ({"model_type": "mistral", "vocab_size": 32000}, 7_241_732_096),
    "Mixtral-8x7B": (
        sizes("mixtral", 4096, 14336, 32, 32, 8, 32000, num_local_experts=8),
        46_702_792_704,
    ),
    "gemma-2-2b": (sizes("gemma2", 2304, 9216, 26, 8, 4, 256000), 2_614_341_888),
    "internlm2-7b": (
        sizes("internlm2", 4096, 14336, 32, 32, 8, 92544, bias=False),
        7_737_708_544,
    ),
    "Baichuan2-7B": (sizes("baichuan", 4096, 11008, 32, 32, 32, 125696), 7_505_973_248),
    "MiniCPM-2B": (sizes("minicpm", 2304, 5760, 40, 36, 36, 122753), 2_724_880_896),
    "chatglm3-6b": ({**GLM, "num_layers": 28, "padded_vocab_size": 65024}, 6_243_584_000),
    "glm-4-9b": ({**GLM, "num_layers": 40, "padded_vocab_size": 151552}, 9_399_951_360),
    "DeepSeek-V2-Lite": (
        sizes("deepseek_v2", 2048, 10944, 27, 16, 16, 102400, q_lora_rank=None, **LATENT)
        | {
            "moe_intermediate_size": 1408,
            "n_routed_experts": 64,
            "n_shared_experts": 2,
            "first_k_dense_replace": 1,
        },
        15_706_484_224,
    ),
    "gpt2": (
        {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}
        | {"n_positions": 1024},
        124_439_808,
    ),
    "bge-m3": (
        sizes("xlm-roberta", 1024, 4096, 24, 16, 16, 250002, type_vocab_size=1)
        | {"max_position_embeddings": 8194},
        567_754_752,
    ),
    "Qwen-VL": (
        sizes("qwen", 4096, 22016, 32, 32, 32, 151936, kv_channels=128, no_bias=True)
        | {"visual": QWEN_VL_VIT},
        9_656_935_168,
    ),
    "Qwen2-VL-7B": (
        {**QWEN2_7B, "model_type": "qwen2_vl", "vision_config": QWEN_VIT},
        8_291_375_616,
    ),
    "Qwen2.5-VL-7B": (
        {
            **QWEN2_7B,
            "model_type": "qwen2_5_vl",
            "vision_config": {"hidden_size": 1280, "out_hidden_size": 3584, "depth": 32},
        },
        8_292_166_656,
    ),
    "Qwen3-VL-8B": (
        {
            "model_type": "qwen3_vl",
            "text_config": sizes("qwen3_vl_text", 4096, 12288, 36, 32, 8, 151936, head_dim=128),
            "vision_config": {"out_hidden_size": 4096, "deepstack_visual_indexes": [8, 16, 24]},
        },
        8_767_123_696,
    ),
    "MiniCPM-V-2_6": (
        {
            **QWEN2_7B,
            "model_type": "minicpmv",
            "version": 2.6,
            "vocab_size": 151666,
            "query_num": 64,
            "vision_config": SIGLIP,
        },
        8_099_175_152,
    ),
    "InternVL2-8B": (
        {
            "model_type": "internvl_chat",
            "downsample_ratio": 0.5,
            "llm_config": sizes("internlm2", 4096, 14336, 32, 32, 8, 92553, bias=False),
            "vision_config": INTERN_VIT,
        },
        8_075_365_376,
    ),
    "llava-1.5-7b": (
        {
            "model_type": "llava",
            "text_config": {"model_type": "llama", "vocab_size": 32064},
            "vision_config": CLIP,
        },
        7_063_427_072,
    ),
    "gemma-3-4b": (
        {
            "model_type": "gemma3",
            "text_config": sizes("gemma3_text", 2560, 10240, 34, 8, 4, 262208),
            "vision_config": {**SIGLIP, "image_size": 896, "vision_use_head": False},
        },
        4_300_079_472,
    ),
}
"""Configurations as they are published, and the number of parameters that the hub shows."""


def test_dropout() -> None:
    """By the rates in the configuration, under the names of GPT-2 and of BERT."""
    gpt2 = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 4}
    stacks = [
        known({**gpt2, "n_positions": 4, **rates}).language
        for rates in (
            {"resid_pdrop": 0.1, "attn_pdrop": 0.0},
            {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.1},
        )
    ]
    assert [(stack.drops_hidden, stack.drops_attention) for stack in stacks] == [
        (True, False),
        (False, True),
    ]


def test_minicpm_o() -> None:
    """MiniCPM-V with Whisper's encoder and speech: 8.67 billion by the hub, with its vocoder."""
    config, vision = PUBLISHED["MiniCPM-V-2_6"]
    audio = {
        "d_model": 1024,
        "encoder_layers": 24,
        "encoder_ffn_dim": 4096,
        "encoder_attention_heads": 16,
    }
    parts = {"model_type": "minicpmo", "audio_config": audio, "tts_config": {}}
    model = known({**config, **parts})
    encoder = sum(weight.total for weight in model.weights if weight.name.startswith("apm."))
    assert encoder == 307_216_384
    assert 0.56e9 < model.parameters - vision < 0.575e9
    assert model.vision is not None
    assert model.vision.slices == 10
    assert known({**config, "model_type": "minicpmo"}).parameters == vision


@table("name", PUBLISHED)
def test_published_number_of_parameters(name: str) -> None:
    """A configuration alone gives every parameter."""
    config, parameters = PUBLISHED[name]
    assert known(config).parameters == parameters


def known(config: Config, weights: tuple[Weight, ...] | None = None) -> Model:
    """The model of a configuration that is known."""
    notes: list[str] = []
    model = model_from_config(config, weights, "x", notes)
    assert model is not None, notes
    return model


TINY = sizes("", 64, 160, 3, 4, 2, 256, max_position_embeddings=32, pad_token_id=0)
TINY_HEADS = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4}
TINY_EXPERTS = {"moe_intermediate_size": 48, "num_experts_per_tok": 2}
TINY_TOWER = sizes("", 32, 48, 2, 2, 2, 1, image_size=28, patch_size=14)
OPT = {"ffn_dim": 96, "word_embed_proj_dim": 32, "do_layer_norm_before": False}

SAME_NAMES: list[tuple[str, Config]] = [
    ("llama", {"attention_bias": True, "mlp_bias": True}),
    ("llama", {"tie_word_embeddings": True}),
    ("mistral", {}),
    ("qwen2", {}),
    ("qwen3", {"head_dim": 20}),
    ("gemma", {"head_dim": 16}),
    ("gemma2", {"head_dim": 16}),
    ("gemma3_text", {"head_dim": 16}),
    ("phi3", {}),
    ("glm", {"head_dim": 16}),
    ("glm4", {"head_dim": 16}),
    ("minicpm3", {**TINY_HEADS, "v_head_dim": 12}),
    ("gpt2", {}),
    ("opt", OPT),
    ("opt", {"ffn_dim": 96, "word_embed_proj_dim": 64}),
    ("bloom", {}),
    ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2, "bias": True}),
    ("falcon", {"multi_query": True, "parallel_attn": True}),
    ("falcon", {"multi_query": False, "parallel_attn": False, "alibi": True, "bias": True}),
    ("bert", {}),
    ("roberta", {}),
    ("xlm-roberta", {}),
]
OTHER_NAMES: list[tuple[str, Config]] = [
    ("gpt_neox", {}),
    ("mixtral", {"num_local_experts": 4}),
    (
        "qwen2_moe",
        {
            **TINY_EXPERTS,
            "num_experts": 4,
            "shared_expert_intermediate_size": 24,
            "mlp_only_layers": [0],
        },
    ),
    ("qwen3_moe", {**TINY_EXPERTS, "num_experts": 4, "decoder_sparse_step": 2}),
    (
        "deepseek_v3",
        {
            **TINY_HEADS,
            **TINY_EXPERTS,
            "v_head_dim": 12,
            "n_routed_experts": 4,
            "n_shared_experts": 2,
            "first_k_dense_replace": 1,
            "n_group": 1,
            "topk_group": 1,
        },
    ),
    ("llava", {"text_config": {**TINY, "model_type": "llama"}, "vision_config": TINY_TOWER}),
    ("llava_next", {"text_config": {**TINY, "model_type": "llama"}, "vision_config": TINY_TOWER}),
    ("gemma3", {"text_config": {**TINY, "head_dim": 16}, "vision_config": TINY_TOWER}),
    (
        "qwen2_vl",
        {
            "text_config": TINY,
            "vision_config": {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2},
        },
    ),
    (
        "qwen3_vl",
        {
            "text_config": {**TINY, "head_dim": 16},
            "vision_config": {
                "depth": 2,
                "hidden_size": 32,
                "intermediate_size": 48,
                "out_hidden_size": 64,
                "num_heads": 2,
                "num_position_embeddings": 16,
                "deepstack_visual_indexes": [0, 1],
            },
        },
    ),
    (
        "qwen2_5_vl",
        {
            "text_config": TINY,
            "vision_config": {"depth": 2, "hidden_size": 32, "out_hidden_size": 64, "num_heads": 2},
        },
    ),
]


def built(model_type: str, changes: Config) -> tuple[transformers.PreTrainedModel, Config, Config]:
    """A model without memory for its weights; its whole and its shortest configuration."""
    tower = {"llava": "clip_vision_model", "llava_next": "clip_vision_model"}.get(model_type)
    is_vision = "vision_config" in changes
    if is_vision:
        kinds = {"model_type": tower or "siglip_vision_model"} if "qwen" not in model_type else {}
        vision = {**changes["vision_config"], **kinds}
        text = {"model_type": f"{model_type}_text", **{k: v for k, v in TINY.items() if v != ""}}
        text = {**text, **{k: v for k, v in changes["text_config"].items() if v != ""}}
        changes = {**changes, "vision_config": vision, "text_config": text}
        config = transformers.AutoConfig.for_model(model_type, **changes)
        kind = transformers.AutoModelForImageTextToText
    else:
        plain = {key: value for key, value in TINY.items() if key != "model_type"}
        if model_type == "falcon":
            del plain["num_key_value_heads"], plain["intermediate_size"]
        config = transformers.AutoConfig.for_model(model_type, **{**plain, **changes})
        kind = transformers.AutoModel if "bert" in model_type else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = kind.from_config(config)
    said = {"model_type": model_type, "architectures": [type(model).__name__]}
    return model, {**config.to_dict(), **said}, {**config.to_diff_dict(), **said}


def parameters_of(model: transformers.PreTrainedModel) -> tuple[Weight, ...]:
    """The parameters of a live model."""
    return grouped(
        (name, tuple(one.shape), one.requires_grad) for name, one in model.named_parameters()
    )


def counted(weights: tuple[Weight, ...]) -> dict[tuple[str, tuple[int, ...]], int]:
    """Counts by name and shape."""
    return {(weight.name, weight.shape): weight.count for weight in weights}


@table(("model_type", "changes"), SAME_NAMES)
def test_names_and_shapes_are_those_of_transformers(model_type: str, changes: Config) -> None:
    """Every weight of what transformers builds, from all of its configuration or the short form."""
    model, whole, short = built(model_type, changes)
    for config in (whole, short):
        assert counted(known(config).weights) == counted(parameters_of(model))
    seen = known(whole, parameters_of(model))
    derived = known(whole)
    assert (seen.language, seen.tied, seen.vocabulary) == (
        derived.language,
        derived.tied,
        derived.vocabulary,
    )


@pytest.mark.parametrize(("model_type", "changes"), OTHER_NAMES)
def test_sizes_where_checkpoints_have_other_names(model_type: str, changes: Config) -> None:
    """Version 5 of transformers renames towers and fuses experts when it loads; the sum stays."""
    model, whole, short = built(model_type, changes)
    seen = known(whole, parameters_of(model))
    for config in (whole, short):
        derived = known(config)
        assert derived.parameters == seen.parameters
        assert derived.vocabulary == seen.vocabulary
        assert (derived.vision is None) == (seen.vision is None)


@pytest.mark.parametrize("model_type", ["llama", "mistral", "gemma3_text", "llava", "qwen2_vl"])
def test_what_a_configuration_omits_is_its_class_default(model_type: str) -> None:
    """An empty configuration is what transformers takes it for."""
    config = transformers.AutoConfig.for_model(model_type)
    kind = (
        transformers.AutoModelForImageTextToText
        if "vision_config" in config.to_dict()
        else transformers.AutoModelForCausalLM
    )
    with torch.device("meta"):
        model = kind.from_config(config)
    short = {**config.to_diff_dict(), "model_type": model_type}
    assert known(short).parameters == sum(one.numel() for one in model.parameters())


def test_stacks_of_a_vision_language_model() -> None:
    """Both towers with their own facts."""
    model = known(PUBLISHED["Qwen2-VL-7B"][0])
    assert model.language.prefix == "model.layers."
    assert (model.language.heads, model.language.kv_heads, model.language.head_dim) == (28, 4, 128)
    assert model.vision is not None
    assert model.vision.prefix == "visual.blocks."
    assert (model.vision.hidden, model.vision.patch, model.vision.merge) == (1280, 14, 2)
    assert not model.vision.gated


def test_numbers_that_are_part_of_a_word_stay() -> None:
    """`w1` is a name, `layers.1` a place."""
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
    name: str, changes: dict[int, Any], part: str, is_seen: bool
) -> None:
    """A model, none with a note, or an error for people; whatever the keys hold."""
    config = json.loads(json.dumps(PUBLISHED[name][0]))
    seen = known(config).weights if is_seen else None
    inner = config.get(part) if isinstance(config.get(part), dict) else config
    keys = [*inner, "architectures", "mlp_only_layers", "vision_config", "text_config", "num_heads"]
    for index, value in changes.items():
        inner[keys[index % len(keys)]] = value
    notes: list[str] = []
    problem = ""
    try:
        model = model_from_config(config, seen, "config.json", notes)
    except LaunchError as error:
        problem = error.problem
    assert problem.startswith("config.json: ") or model is not None or len(notes) == 1
