"""Checks of what an adapter's configuration names, and of adapters on tied weights."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from .finding import Check, Finding, first_of

ROLES = (
    {
        *("q_proj", "k_proj", "v_proj", "qkv_proj", "query", "key", "value", "query_key_value"),
        *("c_attn", "Wqkv", "qkv", "in_proj", "q_lin", "k_lin", "v_lin", "query_proj", "key_proj"),
        *("value_proj", "q", "k", "v", "wq", "wk", "wv", "W_pack", "to_q", "to_k", "to_v"),
        "kv_a_proj_with_mqa",
    },
    {"o_proj", "out_proj", "dense", "c_proj", "o", "wo", "out_lin", "to_out.0", "proj"},
    {
        *("gate_proj", "up_proj", "down_proj", "gate_up_proj", "fc1", "fc2", "w1", "w2", "w3"),
        *("wi", "wi_0", "wi_1", "wo", "c_fc", "c_proj", "dense_h_to_4h", "dense_4h_to_h", "lin1"),
        *("lin2", "fc_in", "fc_out", "mlp.0", "mlp.2", "intermediate.dense", "output.dense"),
    },
    {"lm_head", "embed_out", "output_layer", "output"},
    {"embed_tokens", "wte", "word_embeddings", "embed_in", "embedding", "tok_embeddings"},
    {"classifier", "score", "head", "pre_classifier", "qa_outputs", "classification_head"},
)
"""Names that models give to modules of one purpose: a list for several models has many of them."""


def unmatched(names: Iterable[str], modules: Collection[str]) -> tuple[list[str], list[str]]:
    """The names that no module has, and those that some have, as peft compares them.

    Args:
        names: of a list for target_modules or modules_to_save.
        modules: the model's modules.
    """
    missing: list[str] = []
    found: list[str] = []
    for name in sorted(names):
        is_there = any(module == name or module.endswith(f".{name}") for module in modules)
        (found if is_there else missing).append(name)
    return missing, found


def named_in_vain(option: str, names: Collection[str], modules: Collection[str]) -> Finding | None:
    """Reports names of a configuration that match nothing, though others do.

    Names are left out if another of the same purpose matches: the list may be for several models.

    Args:
        option: the configuration's field.
        names: its list.
        modules: the model's modules.
    """
    missing, found = unmatched(names, modules)
    in_vain = [
        name
        for name in missing
        if not any(name in role and not role.isdisjoint(found) for role in ROLES)
    ]
    if not in_vain or not (found or option == "modules_to_save"):
        return None
    inner = {module.rpartition(".")[0] for module in modules}
    ends = sorted({module.rpartition(".")[2] for module in modules if module not in inner})
    kept = f", only {first_of(found)} {'do' if len(found) > 1 else 'does'}" if found else ""
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"{first_of(in_vain)} of {option} {'match' if len(in_vain) > 1 else 'matches'} no "
        f"module of the model{kept}: what it should have named isn't trained",
        advice=f"Its modules are {', '.join(ends[:12])}",
    )


def merged_into_both(adapted: str, other: str) -> Finding:
    """Reports a merge of an adapter that only one of two tied weights has.

    Args:
        adapted: the layer with the adapter.
        other: the layer that shares its weight.
    """
    return Finding(
        Check.SAVED,
        certain=True,
        sentence=f"merge_and_unload changes the model: only {adapted} has an adapter, and shares "
        f"its weight with {other}, which changes too",
        advice="Adapt both (ensure_weight_tying=True in the LoraConfig), leave both out, or keep "
        "the adapter apart",
        parameter=adapted,
    )
