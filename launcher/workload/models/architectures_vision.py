"""Vision towers.

The templates are in the language of `architectures.py`; a tower's names are relative to the prefix
that its join in `vision_joins.py` gives it.
"""

from __future__ import annotations

from typing import Any

from .architectures import Architecture

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
_QWEN_VL_TOWER = """
conv1 hidden channels patch patch
=positional_embedding 256 hidden
=proj width width
ln_pre hidden +
ln_post width +
=attn_pool.query 256 width
=attn_pool.pos_embed 256 width
attn_pool.kv_proj width hidden
=attn_pool.attn.in_proj_weight 3*width width
=attn_pool.attn.in_proj_bias 3*width
attn_pool.attn.out_proj width width +
attn_pool.ln_q width +
attn_pool.ln_kv width +
transformer.resblocks.*
  ln_1 hidden +
  ln_2 hidden +
  attn.in_proj 3*hidden hidden +
  attn.out_proj hidden hidden +
  mlp.c_fc ffn hidden +
  mlp.c_proj hidden ffn +
"""


def _number(value: Any, default: float) -> float:
    """A number in a configuration."""
    return float(value) if isinstance(value, int | float) else default


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
    "qwen_vl": Architecture(
        _QWEN_VL_TOWER,
        derive=lambda sizes: {
            "hidden": sizes["width"],
            "layers": int(_number(sizes.raw("layers"), 48)),
            "heads": int(_number(sizes.raw("heads"), 16)),
            "ffn": int(sizes["width"] * _number(sizes.raw("mlp_ratio"), 4.0)),
            "width": sizes["output_dim"],
        },
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
