"""How vision towers are joined to language models.

The templates of projectors are in the language of `architectures.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
        slice: side of the slices that an image is cut into, in pixels; 0 where it isn't.
        beside: further parts, by their section of the configuration; `width` is the language
            model's hidden size there too.
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
    slice: int = 0
    beside: Mapping[str, Architecture] = field(default_factory=lambda: MappingProxyType({}))


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
_WHISPER = Architecture(
    """
apm.conv1 d_model num_mel_bins 3 +
apm.conv2 d_model d_model 3 +
apm.embed_positions max_source_positions d_model
apm.layer_norm d_model +
audio_projection_layer.linear1 width d_model +
audio_projection_layer.linear2 width width +
apm.layers.*
  self_attn.k_proj d_model d_model
  self_attn.v_proj d_model d_model +
  self_attn.q_proj d_model d_model +
  self_attn.out_proj d_model d_model +
  self_attn_layer_norm d_model +
  fc1 encoder_ffn_dim d_model +
  fc2 d_model encoder_ffn_dim +
  final_layer_norm d_model +
""",
    {"num_mel_bins": 80, "max_source_positions": 1500},
    derive=lambda sizes: {"layers": sizes["encoder_layers"]},
)
_SPEECH = Architecture(
    """
tts.projector.linear1 hidden width +
tts.projector.linear2 hidden hidden +
tts.emb_text num_text_tokens hidden
tts.emb_code.0 num_vq*num_audio_tokens hidden
tts.head_code.0 num_vq*num_audio_tokens hidden
tts.model.embed_tokens 32000 hidden
tts.model.norm hidden
tts.model.layers.*
  self_attn.q_proj hidden hidden
  self_attn.k_proj hidden hidden
  self_attn.v_proj hidden hidden
  self_attn.o_proj hidden hidden
  mlp.gate_proj ffn hidden
  mlp.up_proj ffn hidden
  mlp.down_proj hidden ffn
  input_layernorm hidden
  post_attention_layernorm hidden
""",
    {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 20,
        "num_attention_heads": 12,
        "num_audio_tokens": 626,
        "num_text_tokens": 21178,
        "num_vq": 4,
    },
)
_INTERNVL_PROJECTOR = """
mlp1.0 merged*hidden +
mlp1.1 width merged*hidden +
mlp1.3 width width +
"""

_MINICPM_V = Join(
    "minicpmv_vision",
    "vpm.",
    "llm.",
    _RESAMPLER,
    versions=MappingProxyType({"2.5": "llama", "2.6": "qwen2"}),
    slice=448,
)

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
    "qwen": Join("qwen_vl", "transformer.visual.", "", "", language="qwen", merge=2),
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
    "minicpmv": _MINICPM_V,
    "minicpmo": replace(
        _MINICPM_V,
        beside=MappingProxyType({"audio_config": _WHISPER, "tts_config": _SPEECH}),
    ),
}
"""By `model_type`."""
