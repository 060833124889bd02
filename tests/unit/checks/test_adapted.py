"""What adapters' configurations name."""

from __future__ import annotations

from safe_launch.checks import adapted
from support.tables import table

LLAMA = [
    "",
    "model.layers.0.self_attn.q_proj",
    "model.layers.0.self_attn.o_proj",
    "model.layers.0.mlp.down_proj",
    "model.embed_tokens",
    "lm_head",
]
PHI = ["", "layers.0.self_attn.qkv_proj", "layers.0.self_attn.o_proj", "layers.0.mlp.down_proj"]


@table(
    ("option", "names", "modules", "words"),
    [
        ("target_modules", ["q_proj", "k_proj", "o_proj"], PHI, "k_proj and 1 more of target_mod"),
        ("target_modules", ["qkv_proj", "o_proj"], PHI, ""),
        ("target_modules", ["q_proj", "query_key_value"], LLAMA, ""),  # for several models
        ("target_modules", ["q_proj", "attention"], LLAMA, "attention of target_modules matches"),
        ("target_modules", ["layers.0.self_attn.q_proj"], LLAMA, ""),
        ("target_modules", ["query_key_value"], LLAMA, ""),  # peft raises
        ("modules_to_save", ["classifier", "score"], [*LLAMA, "score"], ""),  # peft names both
        ("modules_to_save", ["embed_in", "lm_head"], [*LLAMA], "embed_in of modules_to_save"),
        ("modules_to_save", ["wte"], LLAMA, "wte of modules_to_save matches no module of the mod"),
        ("modules_to_save", ["embed_tokens", "lm_head"], LLAMA, ""),
    ],
)
def test_names(option: str, names: list[str], modules: list[str], words: str) -> None:
    """Names that match nothing, unless another of the same purpose does."""
    found = adapted.named_in_vain(option, names, modules)
    assert (found is not None) == bool(words)
    assert found is None or words in found.sentence
