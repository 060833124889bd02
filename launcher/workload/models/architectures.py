"""Weights of common language models, a line for each, in terms of their config.json.

A template names weights as their checkpoints do; `from_config.py` evaluates it:

- `NAME SIZE...` is a parameter NAME.weight; `=NAME SIZE...` a parameter NAME.
- A size is a sum of products of numbers and names: those of `shapes.ALIASES`, what `derive` adds,
  or keys of config.json.
- `+` adds NAME.bias, with the weight's first size; `+KEY` does so if KEY is true.
- `?KEY` at the end keeps the line only if KEY is true, `?!KEY` only if it isn't.
- A line `PREFIX.*` begins the layers; the following indented lines apply to each layer, or to
  `@COUNT` of them. A second `*` counts experts.

The names and sizes are those of transformers/models/TYPE/modeling_TYPE.py, and for types that
transformers doesn't have, of the modeling files in the checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol


class Sizes(Protocol):
    """Looks up a size by name."""

    def __getitem__(self, name: str) -> int:
        """The size; it must be known."""

    def get(self, name: str, default: int = 0) -> int:
        """The size, or a default if it isn't known."""

    def raw(self, key: str) -> Any:
        """The unchanged value of a key of config.json."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """How the weights of a model type follow from its configuration.

    Attributes:
        template: the weights.
        defaults: the configuration class's defaults.
        derive: further sizes.
        gated: whether the feed-forward part has a gate.
        tied: the default of whether the output projection is the embedding.
        output: whether there is an output projection.
    """

    template: str
    defaults: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    derive: Callable[[Sizes], dict[str, int]] = lambda _: {}
    gated: bool = True
    tied: bool = False
    output: bool = True


_ENDS = """
model.embed_tokens vocab hidden
model.norm hidden
lm_head vocab hidden ?!tied
model.layers.*
  input_layernorm hidden
  post_attention_layernorm hidden
"""
_OUT = "  self_attn.o_proj hidden q +attention_bias\n"
_ATTENTION = """
  self_attn.q_proj q hidden +attention_bias
  self_attn.k_proj k hidden +attention_bias
  self_attn.v_proj k hidden +attention_bias
"""
_QK_NORM = """
  self_attn.q_norm head_dim
  self_attn.k_norm head_dim
"""
_FFN = """
  mlp.gate_proj ffn hidden +mlp_bias @dense
  mlp.up_proj ffn hidden +mlp_bias @dense
  mlp.down_proj hidden ffn +mlp_bias @dense
"""
_EXPERTS = """
  mlp.gate experts hidden @sparse
  mlp.experts.*.gate_proj expert_ffn hidden @sparse*experts
  mlp.experts.*.up_proj expert_ffn hidden @sparse*experts
  mlp.experts.*.down_proj hidden expert_ffn @sparse*experts
"""
_FUSED_FFN = """
  mlp.gate_up_proj 2*ffn hidden
  mlp.down_proj hidden ffn
"""
_LLAMA = _ENDS + _ATTENTION + _OUT + _FFN
_QWEN2_ATTENTION = _ATTENTION.replace("+attention_bias", "+") + "  self_attn.o_proj hidden q\n"
_GEMMA2 = _LLAMA + "  pre_feedforward_layernorm hidden\n" + "  post_feedforward_layernorm hidden\n"
_STABLELM = (
    _ENDS.replace("norm hidden", "norm hidden +")
    + _ATTENTION.replace("attention_bias", "use_qkv_bias")
    + "  self_attn.o_proj hidden q\n"
    + _FFN
)
_GLM = _ENDS + _ATTENTION + "  self_attn.o_proj hidden q\n" + _FUSED_FFN
_LATENT_ATTENTION = """
  self_attn.q_proj heads*qk_head_dim hidden ?!q_lora_rank
  self_attn.q_a_proj q_lora_rank hidden +attention_bias ?q_lora_rank
  self_attn.q_a_layernorm q_lora_rank ?q_lora_rank
  self_attn.q_b_proj heads*qk_head_dim q_lora_rank ?q_lora_rank
  self_attn.kv_a_proj_with_mqa kv_lora_rank+qk_rope_head_dim hidden +attention_bias
  self_attn.kv_a_layernorm kv_lora_rank
  self_attn.kv_b_proj heads*qk_nope_head_dim+heads*v_head_dim kv_lora_rank
  self_attn.o_proj hidden heads*v_head_dim +attention_bias
"""
_DEEPSEEK = (
    _ENDS
    + _LATENT_ATTENTION
    + _FFN
    + _EXPERTS
    + """
  mlp.shared_experts.gate_proj shared_ffn hidden @sparse ?n_shared_experts
  mlp.shared_experts.up_proj shared_ffn hidden @sparse ?n_shared_experts
  mlp.shared_experts.down_proj hidden shared_ffn @sparse ?n_shared_experts
"""
)


def _sparse_by_step(sizes: Sizes) -> dict[str, int]:
    """Layers with experts in Qwen's mixtures: every n-th, except those listed as dense."""
    layers, step = sizes["layers"], sizes.get("decoder_sparse_step", 1)
    listed = sizes.raw("mlp_only_layers")
    dense = (
        {name for name in listed if isinstance(name, int)} if isinstance(listed, list) else set()
    )
    if step == 0:
        return {"sparse": 0, "dense": layers}
    among = sum(1 for index in dense if 0 <= index < layers and (index + 1) % step == 0)
    sparse = layers // step - among
    return {"sparse": sparse, "dense": layers - sparse}


def _deepseek(sizes: Sizes) -> dict[str, int]:
    """DeepSeek's two-part heads, its first dense layers and its shared experts."""
    head = sizes["qk_nope_head_dim"] + sizes["qk_rope_head_dim"]
    dense = min(sizes.get("first_k_dense_replace"), sizes["layers"])
    shared = sizes.get("n_shared_experts") * sizes.get("expert_ffn")
    return {
        "qk_head_dim": head,
        "head_dim": head,
        "kv": sizes["heads"],
        "dense": dense,
        "sparse": sizes["layers"] - dense,
        "shared_ffn": shared,
    }


def _minicpm3(sizes: Sizes) -> dict[str, int]:
    """MiniCPM3's two-part heads; its layers have no experts."""
    head = sizes["qk_nope_head_dim"] + sizes["qk_rope_head_dim"]
    value = sizes.get("v_head_dim") or sizes["hidden"] // sizes["heads"]
    return {"qk_head_dim": head, "head_dim": head, "kv": sizes["heads"], "v_head_dim": value}


def _chatglm(sizes: Sizes) -> dict[str, int]:
    """ChatGLM's groups of keys, and its biases of queries, keys and values."""
    groups = sizes["multi_query_group_num"] if sizes.get("multi_query_attention") else 0
    bias = sizes.get("add_qkv_bias") or sizes.get("add_bias_linear")
    return {"kv": groups or sizes["heads"], "qkv_bias": bias}


ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(
        _LLAMA,
        {
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "max_position_embeddings": 2048,
        },
    ),
    "mistral": Architecture(
        _LLAMA,
        {
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131072,
        },
    ),
    "granite": Architecture(_LLAMA),
    "stablelm": Architecture(_STABLELM),
    "mixtral": Architecture(
        _ENDS
        + _ATTENTION
        + _OUT
        + """
  block_sparse_moe.gate experts hidden
  block_sparse_moe.experts.*.w1 ffn hidden
  block_sparse_moe.experts.*.w2 hidden ffn
  block_sparse_moe.experts.*.w3 ffn hidden
""",
        {"num_local_experts": 8, "num_experts_per_tok": 2, "num_key_value_heads": 8},
        derive=lambda sizes: {"expert_ffn": sizes["ffn"]},
    ),
    "qwen": Architecture(
        """
transformer.wte vocab hidden
transformer.ln_f hidden
lm_head vocab hidden ?!tied
transformer.h.*
  ln_1 hidden
  ln_2 hidden
  attn.c_attn 3*q hidden +
  attn.c_proj hidden q +!no_bias
  mlp.w1 ffn hidden +!no_bias
  mlp.w2 ffn hidden +!no_bias
  mlp.c_proj hidden ffn +!no_bias
""",
        {"no_bias": True},
        # intermediate_size is the width of both branches together.
        derive=lambda sizes: {"ffn": sizes["intermediate_size"] // 2},
    ),
    "qwen2": Architecture(_ENDS + _QWEN2_ATTENTION + _FFN, {"num_key_value_heads": 32}),
    "qwen2_moe": Architecture(
        _ENDS
        + _ATTENTION.replace("+attention_bias", "+qkv_bias")
        + "  self_attn.o_proj hidden q\n"
        + _FFN
        + _EXPERTS
        + """
  mlp.shared_expert.gate_proj shared_expert_intermediate_size hidden @sparse
  mlp.shared_expert.up_proj shared_expert_intermediate_size hidden @sparse
  mlp.shared_expert.down_proj hidden shared_expert_intermediate_size @sparse
  mlp.shared_expert_gate 1 hidden @sparse
""",
        {"qkv_bias": True, "num_experts_per_tok": 4, "num_experts": 60},
        derive=_sparse_by_step,
    ),
    "qwen3": Architecture(_LLAMA + _QK_NORM, {"num_key_value_heads": 32, "head_dim": 128}),
    "qwen3_vl_text": Architecture(
        (_LLAMA + _QK_NORM).replace("model.", "model.language_model."), {"head_dim": 128}
    ),
    "qwen3_moe": Architecture(
        _LLAMA + _QK_NORM + _EXPERTS,
        {"num_experts": 128, "num_experts_per_tok": 8},
        derive=_sparse_by_step,
    ),
    "gemma": Architecture(_LLAMA, {"head_dim": 256}, tied=True),
    "gemma2": Architecture(_GEMMA2, {"head_dim": 256, "num_key_value_heads": 4}, tied=True),
    "gemma3_text": Architecture(
        _GEMMA2 + _QK_NORM,
        {
            "vocab_size": 262208,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_hidden_layers": 26,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "max_position_embeddings": 131072,
        },
        tied=True,
    ),
    "phi3": Architecture(
        _ENDS + "  self_attn.qkv_proj q+2*k hidden\n  self_attn.o_proj hidden q\n" + _FUSED_FFN
    ),
    "internlm2": Architecture(
        """
model.tok_embeddings vocab hidden
model.norm hidden
output vocab hidden ?!tied
model.layers.*
  attention_norm hidden
  ffn_norm hidden
  attention.wqkv q+2*k hidden +bias
  attention.wo hidden q +bias
  feed_forward.w1 ffn hidden
  feed_forward.w3 ffn hidden
  feed_forward.w2 hidden ffn
""",
        {"bias": True},
    ),
    "baichuan": Architecture(
        _ENDS + "  self_attn.W_pack 3*hidden hidden\n  self_attn.o_proj hidden hidden\n" + _FFN
    ),
    "chatglm": Architecture(
        """
transformer.embedding.word_embeddings vocab hidden
transformer.encoder.final_layernorm hidden +!rmsnorm ?post_layer_norm
transformer.output_layer vocab hidden +add_bias_linear ?!tied
transformer.encoder.layers.*
  input_layernorm hidden +!rmsnorm
  post_attention_layernorm hidden +!rmsnorm
  self_attention.query_key_value q+2*k hidden +qkv_bias
  self_attention.dense hidden q +add_bias_linear
  mlp.dense_h_to_4h 2*ffn hidden +add_bias_linear
  mlp.dense_4h_to_h hidden ffn +add_bias_linear
""",
        {"rmsnorm": True, "post_layer_norm": True},
        derive=_chatglm,
    ),
    "glm": Architecture(_GLM),
    "glm4": Architecture(_GLM + "  post_self_attn_layernorm hidden\n  post_mlp_layernorm hidden\n"),
    "minicpm": Architecture(_LLAMA, tied=True),
    "minicpm3": Architecture(_ENDS + _LATENT_ATTENTION + _FFN, derive=_minicpm3, tied=True),
    "deepseek_v2": Architecture(_DEEPSEEK, derive=_deepseek),
    "deepseek_v3": Architecture(_DEEPSEEK, derive=_deepseek),
}
"""By `model_type`; more are in `architectures_gpt.py` and `architectures_vision.py`."""
