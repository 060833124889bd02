"""Vision towers, and how they are connected to a language model.

The templates are in the language of `architectures.py`; a tower's names are relative to
the prefix that the join gives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from .architectures import Architecture


@dataclass(frozen=True, slots=True)
class Join:
    """A vision-language model: a tower, a projector, a language model.

    Attributes:
        tower: default type of the tower.
        tower_prefix: prefix of the tower's names.
        language_prefix: prefix of the language model's names.
        projector: template of the rest. Its sizes are the tower's; `width` is the language model's
            hidden size, `merged` the patches that become one token.
        language: default type of the language model.
        merge: patches along each side that become one token of the language model.
        tower_defaults: defaults of the tower's configuration class.
        tied: the default of whether the output projection is the embedding; None for the language
            model's default.
        versions: type of the language model by the configuration's `version`, if that decides.
    """

    tower: str
    tower_prefix: str
    language_prefix: str
    projector: str
    language: str = "llama"
    merge: int = 1
    tower_defaults: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    tied: bool | None = None
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


_CLIP_LAYERS = """
  layer_norm1 hidden +
  layer_norm2 hidden +
  self_attn.q_proj hidden hidden +
  self_attn.k_proj hidden hidden +
  self_attn.v_proj hidden hidden +
  self_attn.out_proj hidden hidden +
  mlp.fc1 ffn hidden +
  mlp.fc2 hidden ffn +
"""
_QWEN_TOWER = """
patch_embed.proj hidden channels frames patch patch
merger.mlp.0 merged*hidden merged*hidden +
merger.mlp.2 width merged*hidden +
blocks.*
  attn.qkv 3*hidden hidden +
  attn.proj hidden hidden +
"""
_QWEN3_TOWER = """
patch_embed.proj hidden channels frames patch patch +
pos_embed num_position_embeddings hidden
merger.norm hidden +
merger.linear_fc1 merged*hidden merged*hidden +
merger.linear_fc2 width merged*hidden +
deepstack_merger_list.*.norm merged*hidden + @deepstack
deepstack_merger_list.*.linear_fc1 merged*hidden merged*hidden + @deepstack
deepstack_merger_list.*.linear_fc2 width merged*hidden + @deepstack
blocks.*
  norm1 hidden +
  norm2 hidden +
  attn.qkv 3*hidden hidden +
  attn.proj hidden hidden +
  mlp.linear_fc1 ffn hidden +
  mlp.linear_fc2 hidden ffn +
"""
_LLAVA_PROJECTOR = """
multi_modal_projector.linear_1 width hidden +multimodal_projector_bias
multi_modal_projector.linear_2 width width +multimodal_projector_bias
"""
_RESAMPLER = """
=resampler.query query_num width
resampler.kv_proj width hidden
=resampler.attn.in_proj_weight 3*width width
=resampler.attn.in_proj_bias 3*width
resampler.attn.out_proj width width +
resampler.ln_q width +
resampler.ln_kv width +
resampler.ln_post width +
=resampler.proj width width
"""
_INTERNVL_PROJECTOR = """
mlp1.0 merged*hidden +
mlp1.1 width merged*hidden +
mlp1.3 width width +
"""


def _length(value: Any, default: int) -> int:
    """The length of a list in a configuration."""
    return len(value) if isinstance(value, list) else default


TOWERS: dict[str, Architecture] = {
    "clip_vision_model": Architecture(
        """
=vision_model.embeddings.class_embedding hidden
vision_model.embeddings.patch_embedding hidden channels patch patch
vision_model.embeddings.position_embedding patches+1 hidden
vision_model.pre_layrnorm hidden +
vision_model.post_layernorm hidden +
vision_model.encoder.layers.*
"""
        + _CLIP_LAYERS,
        {
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "image_size": 224,
            "patch_size": 32,
        },
        gated=False,
    ),
    "siglip_vision_model": Architecture(
        """
vision_model.embeddings.patch_embedding hidden channels patch patch +
vision_model.embeddings.position_embedding patches hidden
vision_model.post_layernorm hidden +
=vision_model.head.probe 1 1 hidden ?vision_use_head
=vision_model.head.attention.in_proj_weight 3*hidden hidden ?vision_use_head
=vision_model.head.attention.in_proj_bias 3*hidden ?vision_use_head
vision_model.head.attention.out_proj hidden hidden + ?vision_use_head
vision_model.head.layernorm hidden + ?vision_use_head
vision_model.head.mlp.fc1 ffn hidden + ?vision_use_head
vision_model.head.mlp.fc2 hidden ffn + ?vision_use_head
vision_model.encoder.layers.*
"""
        + _CLIP_LAYERS,
        {
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "image_size": 224,
            "patch_size": 16,
            "vision_use_head": True,
        },
        gated=False,
    ),
    "minicpmv_vision": Architecture(
        """
embeddings.patch_embedding hidden channels patch patch +
embeddings.position_embedding patches hidden
post_layernorm hidden +
encoder.layers.*
"""
        + _CLIP_LAYERS,
        gated=False,
    ),
    "intern_vit_6b": Architecture(
        """
=embeddings.class_embedding 1 1 hidden
embeddings.patch_embedding hidden channels patch patch +
=embeddings.position_embedding 1 patches+1 hidden
encoder.layers.*
  =ls1 hidden
  =ls2 hidden
  norm1 hidden +!rms
  norm2 hidden +!rms
  attn.qkv 3*hidden hidden +qkv_bias
  attn.q_norm hidden ?qk_normalization
  attn.k_norm hidden ?qk_normalization
  attn.proj hidden hidden +
  mlp.fc1 ffn hidden +
  mlp.fc2 hidden ffn +
""",
        {
            "hidden_size": 3200,
            "intermediate_size": 12800,
            "num_hidden_layers": 48,
            "num_attention_heads": 25,
            "image_size": 224,
            "patch_size": 14,
            "qkv_bias": False,
            "qk_normalization": True,
        },
        derive=lambda sizes: {"rms": int((sizes.raw("norm_type") or "rms_norm") == "rms_norm")},
        gated=False,
    ),
    "qwen2_vl": Architecture(
        _QWEN_TOWER
        + """
  norm1 hidden +
  norm2 hidden +
  mlp.fc1 ffn hidden +
  mlp.fc2 hidden ffn +
merger.ln_q hidden +
""",
        {
            "embed_dim": 1280,
            "hidden_size": 3584,
            "depth": 32,
            "num_heads": 16,
            "mlp_ratio": 4,
            "patch_size": 14,
        },
        # Here hidden_size is the language model's.
        derive=lambda sizes: {
            "hidden": sizes["embed_dim"],
            "ffn": sizes["embed_dim"] * sizes["mlp_ratio"],
            "width": sizes["hidden_size"],
        },
        gated=False,
    ),
    "qwen2_5_vl": Architecture(
        _QWEN_TOWER
        + """
  norm1 hidden
  norm2 hidden
  mlp.gate_proj ffn hidden +
  mlp.up_proj ffn hidden +
  mlp.down_proj hidden ffn +
merger.ln_q hidden
""",
        {
            "hidden_size": 3584,
            "out_hidden_size": 3584,
            "intermediate_size": 3420,
            "depth": 32,
            "num_heads": 16,
            "patch_size": 14,
        },
        derive=lambda sizes: {"width": sizes["out_hidden_size"]},
    ),
    "qwen3_vl": Architecture(
        _QWEN3_TOWER,
        {
            "hidden_size": 1152,
            "out_hidden_size": 3584,
            "intermediate_size": 4304,
            "depth": 27,
            "num_heads": 16,
            "patch_size": 16,
            "num_position_embeddings": 2304,
        },
        derive=lambda sizes: {
            "width": sizes["out_hidden_size"],
            "deepstack": _length(sizes.raw("deepstack_visual_indexes"), 3),
        },
        gated=False,
    ),
}
"""By `model_type` of the tower's configuration."""

JOINS: dict[str, Join] = {
    "llava": Join(
        "clip_vision_model",
        "vision_tower.",
        "language_model.",
        _LLAVA_PROJECTOR,
        tower_defaults={
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "image_size": 336,
            "patch_size": 14,
        },
        tied=False,
    ),
    "llava_next": Join(
        "clip_vision_model",
        "vision_tower.",
        "language_model.",
        _LLAVA_PROJECTOR + "=image_newline width\n",
        tower_defaults={
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "image_size": 336,
            "patch_size": 14,
        },
        tied=False,
    ),
    "gemma3": Join(
        "siglip_vision_model",
        "vision_tower.",
        "language_model.",
        """
=multi_modal_projector.mm_input_projection_weight hidden width
multi_modal_projector.mm_soft_emb_norm hidden
""",
        language="gemma3_text",
        merge=4,
        tied=True,
    ),
    "qwen2_vl": Join("qwen2_vl", "visual.", "", "", language="qwen2", merge=2),
    "qwen2_5_vl": Join("qwen2_5_vl", "visual.", "", "", language="qwen2", merge=2),
    "qwen3_vl": Join("qwen3_vl", "model.visual.", "", "", language="qwen3_vl_text", merge=2),
    "internvl_chat": Join(
        "intern_vit_6b",
        "vision_model.",
        "language_model.",
        _INTERNVL_PROJECTOR,
        language="internlm2",
        merge=2,
    ),
    "minicpmv": Join(
        "minicpmv_vision",
        "vpm.",
        "llm.",
        _RESAMPLER,
        versions={"2.5": "llama", "2.6": "qwen2"},
    ),
}
"""By `model_type`."""
