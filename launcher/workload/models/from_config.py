"""The shape of a model, from its configuration and its weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...core.model import Model, Stack, Weight
from .stack_sizes import (
    ALIASES,
    ATTENTION_DROPOUT,
    HIDDEN_DROPOUT,
    ConfigSizes,
    MissingSizeError,
    activation,
    drops,
    ffn_of,
    head_dim_of,
    hidden_of,
    is_gated,
    kv_heads_of,
    layers_of,
    stored_type,
)

Config = Mapping[str, Any]
WITHOUT_ROTATION = {
    *("gpt2", "gpt_bigcode", "gpt_neo", "opt", "bloom", "mpt"),
    *("bert", "roberta", "xlm-roberta", "electra", "camembert"),
}
"""Model types without rotary embeddings: positions are embedded or biased."""
SLICES = {"minicpmv": 448, "minicpmo": 448}
"""Side in pixels of these model types' image slices."""
MERGES = {"qwen": 2, "qwen2_vl": 2, "qwen2_5_vl": 2, "qwen3_vl": 2, "gemma3": 4}
"""Patches per side merged into a token, in model types whose configuration may omit it."""
_LANGUAGE_KEYS = ("text_config", "llm_config", "language_config")
_VISION_KEYS = ("vision_config", "visual")
_TOWER_NAMES = {"visual", "vision_tower", "vision_model", "vision_encoder", "vpm", "vit"}


class UnknownShapeError(Exception):
    """A configuration doesn't determine a shape; the message has the reason."""


def model_from_config(config: Config, weights: tuple[Weight, ...], source: str) -> Model | None:
    """The model of a configuration, config.json or a `to_dict()`; None if it isn't determined.

    The `source` is that of the configuration and of all `weights`.

    Raises:
        LaunchError: a size in the configuration is invalid.
    """
    with suppress(UnknownShapeError):
        return shape(config, weights, source, source)
    return None


def weights_of(described: Mapping[str, Any]) -> tuple[Weight, ...]:
    """Weights from a process's description (`core/model.py`)."""
    return tuple(
        Weight(str(name), tuple(sizes), count, trained, bits)
        for name, sizes, trained, bits, count in described["weights"]
    )


def check_sizes(config: Config, path: str) -> None:
    """Checks the sizes of the configuration in file `path`.

    Raises:
        LaunchError: a size is impossible.
    """
    whole, label = _unwrapped(config, f"{path}: ")
    text = ConfigSizes(*_section(whole, label, _LANGUAGE_KEYS) or (whole, label))
    for name in ALIASES:
        text.get(name)


def shape(config: Config, weights: tuple[Weight, ...], path: str, source: str) -> Model:
    """The model that the configuration in the file `path` describes.

    Raises:
        UnknownShapeError: the configuration doesn't determine the shape.
        LaunchError: a size in the configuration is invalid.
    """
    model_type = str(config.get("model_type") or "")
    try:
        whole, whole_label = _unwrapped(config, f"{path}: ")
        text, label = _section(whole, whole_label, _LANGUAGE_KEYS) or (whole, whole_label)
        language = ConfigSizes(text, label)
        has_output = _has_output(config)
        if has_output and _is_tied(config, text):
            # A copy trained by peft is no longer tied.
            weights = tuple(each for each in weights if not each.is_output or each.is_copy)
        tied = has_output and not any(weight.is_output for weight in weights)
        prefix, tower_prefix = _prefixes(weights)
        return Model(
            architecture=_class(config),
            vocabulary=_vocabulary(weights, language, tied=tied),
            language=replace(
                _stack(prefix, language, weights),
                activation=activation(text) or activation(config),
                rotary=model_type not in WITHOUT_ROTATION,
                scales_in_fp32=model_type.startswith("gemma"),
                drops_hidden=drops(config, HIDDEN_DROPOUT),
                drops_attention=drops(config, ATTENTION_DROPOUT),
            ),
            vision=_tower(tower_prefix, whole, whole_label, model_type, weights),
            weights=weights,
            source=source,
            tied=tied,
            context=language.get("positions"),
            model_type=model_type,
            stored=stored_type(config),
        )
    except MissingSizeError as error:
        raise UnknownShapeError(f"{error} is missing, so the model's size isn't known") from None


def _class(config: Config) -> str:
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def _has_output(config: Config) -> bool:
    """Whether the configuration's class has an output projection to the vocabulary.

    Masked language models are usually loaded without one.
    """
    name = _class(config)
    bare = name.endswith("Model") and not name.endswith(("HeadModel", "ChatModel", "GLMModel"))
    return not bare and not name.endswith(("Classification", "ForMaskedLM"))


def _unwrapped(config: Config, label: str) -> tuple[Config, str]:
    """A configuration without Qwen-Omni's talker around it, and its name in messages."""
    thinker = config.get("thinker_config")
    if isinstance(thinker, Mapping):
        return _unwrapped(thinker, f"{label}thinker_config.")
    return config, label


def _section(config: Config, label: str, keys: Iterable[str]) -> tuple[Config, str] | None:
    """The section of a configuration under the first existing key, and its name in messages."""
    for key in keys:
        part = config.get(key)
        if isinstance(part, Mapping):
            return part, f"{label}{key}."
    return None


def _is_tied(config: Config, text: Config) -> bool:
    """Whether the output projection is the embedding, by the configuration."""
    stated = (part.get("tie_word_embeddings") for part in (config, text))
    return next((value for value in stated if isinstance(value, bool)), False)


def _prefixes(weights: tuple[Weight, ...]) -> tuple[str, str]:
    """The prefixes of the layers' names in the language model and in the vision tower."""
    totals: Counter[str] = Counter()
    for weight in weights:
        start, star, _ = weight.name.partition(".*.")
        if star:
            totals[f"{start}."] += weight.total
    towers = [total for total in totals if _TOWER_NAMES & set(total.split("."))]
    language = [total for total in totals if total not in towers]
    return (
        max(language, key=totals.__getitem__, default=""),
        max(towers, key=totals.__getitem__, default=""),
    )


def _vocabulary(weights: tuple[Weight, ...], language: ConfigSizes, *, tied: bool) -> int:
    """Vocabulary size of the output projection."""
    declared = language.get("vocab")
    for weight in weights:
        if weight.is_output:
            return weight.shape[0]
    embeddings = [weight.shape[0] for weight in weights if weight.is_embedding]
    return max(embeddings, default=declared) if tied else 0


def _stack(prefix: str, sizes: ConfigSizes, weights: tuple[Weight, ...]) -> Stack:
    """The layers of one tower; the weights take precedence over the configuration.

    Raises:
        MissingSizeError: neither has a required size.
    """
    inside = [weight for weight in weights if prefix and weight.name.startswith(prefix)]
    hidden = hidden_of(inside, sizes.get("hidden")) or sizes["hidden"]
    sizes = sizes.derive({"hidden": hidden})
    experts = sizes.get("experts")
    declared = (sizes.get("expert_ffn") if experts else 0) or sizes.get("ffn")
    ffn = declared if experts and declared else ffn_of(inside, hidden, declared) or sizes["ffn"]
    heads = sizes["heads"]
    head_dim = head_dim_of(inside, hidden, heads) or sizes["head_dim"]
    return Stack(
        prefix=prefix,
        layers=sizes.get("layers") or layers_of(inside, hidden) or sizes["layers"],
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads_of(inside, hidden, heads, head_dim) or sizes["kv"],
        head_dim=head_dim,
        ffn=ffn,
        gated=is_gated(inside, hidden, ffn),
        experts=experts,
        experts_per_token=sizes.get("experts_per_token") if experts else 0,
    )


def _tower(
    prefix: str, config: Config, label: str, model_type: str, weights: tuple[Weight, ...]
) -> Stack | None:
    """The layers of the vision tower; None without a tower, or without its description."""
    vision = _section(config, label, _VISION_KEYS)
    if not prefix or vision is None:
        return None
    sizes = ConfigSizes(*vision)
    try:
        stack = _stack(prefix, sizes, weights)
    except MissingSizeError:
        return None
    stack = replace(
        stack,
        patch=sizes.get("patch"),
        image=sizes.get("image"),
        merge=_merge(sizes, config, model_type),
    )
    side = SLICES.get(model_type, 0)
    if not side:
        return stack
    cut = ConfigSizes(*_section(config, label, ("slice_config",)) or ({}, label))
    return replace(stack, slice=side, slices=(cut.get("max_slice_nums") or 9) + 1)


def _merge(sizes: ConfigSizes, config: Config, model_type: str) -> int:
    """Patches per side merged into one token of the language model."""
    ratio = config.get("downsample_ratio")
    if isinstance(ratio, float) and 0 < ratio <= 1:
        return round(1 / ratio)
    return sizes.get("spatial_merge_size") or MERGES.get(model_type, 1)
