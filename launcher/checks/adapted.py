"""Checks of adapters: what their configuration names, what is frozen or new, and merges."""

from __future__ import annotations

from collections.abc import Collection

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


def named_in_vain(option: str, names: Collection[str], modules: Collection[str]) -> Finding | None:
    """Reports names of a configuration that match nothing, though others do.

    Names are left out if another of the same purpose matches: the list may be for several models.

    Args:
        option: the configuration's field.
        names: its list.
        modules: the model's modules.
    """
    found = [  # as peft compares them
        name for name in sorted(names) if any(f".{one}".endswith(f".{name}") for one in modules)
    ]
    in_vain = [
        name
        for name in sorted(names)
        if name not in found
        and not any(name in role and not role.isdisjoint(found) for role in ROLES)
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


def replaced(weights: Collection[str]) -> Finding | None:
    """Reports an adapter whose weights a second get_peft_model has replaced."""
    if not weights:
        return None
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence="the model had an adapter, and a new one has replaced its weights: "
        f"{first_of(weights)}",
        advice="Train the adapter that PeftModel.from_pretrained(..., is_trainable=True) returns, "
        "without get_peft_model",
        parameter=next(iter(weights)),
    )


def frozen(parts: Collection[str]) -> Finding:
    """Reports an adapter none of whose parts is trained although other parameters are."""
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"the model's adapter is frozen: "
        f"{first_of(parts, 'requires', 'require')} no gradient, while other parameters are "
        "trained",
        advice="If it is to be trained, load it with PeftModel.from_pretrained(..., "
        "is_trainable=True)",
        step=1,
        parameter=next(iter(parts)),
    )


def unloaded(name: str, folder: str) -> Finding:
    """Reports an adapter made anew of the configuration of one that has been trained.

    Args:
        name: a weight that is zero before the first step.
        folder: the folder with the configuration and the trained weights.
    """
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"the adapter is new: its configuration was read from {folder}, but not the "
        f"trained weights there ({name} is zero)",
        advice="Load it with PeftModel.from_pretrained(model, folder, is_trainable=True); "
        "get_peft_model makes a new one",
        step=1,
        parameter=name,
    )


def new_and_frozen(names: Collection[str], layer: str) -> Finding:
    """Reports random parameters that nothing trains.

    Args:
        names: parameters that the loaded checkpoint lacks.
        layer: the name of the first one's layer, for peft.
    """
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"{first_of(names, 'is', 'are')} new, as the loaded "
        f"checkpoint lacks {'them' if len(names) > 1 else 'it'}, and frozen: random weights are "
        "neither trained nor saved with an adapter",
        advice=f'Train it, with peft by LoraConfig(modules_to_save=["{layer}"])',
        step=1,
        parameter=next(iter(names)),
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
