"""Derives the shape of a model from its configuration."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ...core.model import Model, Stack, Weight
from .architectures import ARCHITECTURES, Architecture
from .architectures_gpt import GPT_ARCHITECTURES
from .architectures_vision import TOWERS
from .config_keys import (
    ATTENTION_DROPOUT,
    HIDDEN_DROPOUT,
    ConfigSizes,
    MissingSizeError,
    activation,
    drops,
    stored_type,
)
from .vision_joins import JOINS, Join
from .weight_patterns import counted

Config = Mapping[str, Any]
WITHOUT_ROTATION = {
    *("gpt2", "gpt_bigcode", "gpt_neo", "opt", "bloom", "mpt"),
    *("bert", "roberta", "xlm-roberta", "electra", "camembert"),
}
"""Model types without rotary embeddings: positions are embedded or biased."""

LANGUAGES: dict[str, Architecture] = ARCHITECTURES | GPT_ARCHITECTURES
_LANGUAGE_KEYS = ("text_config", "llm_config", "language_config")
_VISION_KEYS = ("vision_config", "visual")
_TOWER_NAMES = {"visual", "vision_tower", "vision_model", "vision_encoder", "vpm", "vit"}
_GATES = ("gate_proj", "gate_up_proj", "mlp.w3", "feed_forward.w3", "experts.*.w3")
_FEED_FORWARD = ("mlp", "ffn", "feed_forward", ".fc", "intermediate")


class UnknownShapeError(Exception):
    """A configuration doesn't determine a shape; the message says why."""


def model_from_config(
    config: Config, weights: tuple[Weight, ...] | None, source: str, notes: list[str] | None = None
) -> Model | None:
    """The model that a configuration describes.

    Args:
        config: config.json, or a configuration's `to_dict()`.
        weights: the weights if they are known; None to derive them.
        source: where both were read.
        notes: gets a sentence on why there is no model.

    Raises:
        LaunchError: a size in the configuration is invalid.
    """
    try:
        return shape(config, weights, source, source)
    except UnknownShapeError as error:
        if notes is not None:
            notes.append(str(error))
        return None


def shape(config: Config, weights: tuple[Weight, ...] | None, path: str, source: str) -> Model:
    """The model that the configuration in the file `path` describes.

    Raises:
        UnknownShapeError: the configuration doesn't determine it.
        LaunchError: a size in the configuration is invalid.
    """
    model_type = str(config.get("model_type") or "")
    try:
        whole, whole_label = _unwrapped(config, f"{path}: ")
        text, label = _section(whole, whole_label, _LANGUAGE_KEYS) or (whole, whole_label)
        join = JOINS.get(model_type)
        vision, vision_label = _section(whole, whole_label, _VISION_KEYS) or (None, whole_label)
        if join is not None and vision is None and model_type in LANGUAGES:
            join = None
        language_type = _language_type(config, text, join)
        architecture = LANGUAGES.get(language_type)
        language = _sizes(text, label, architecture)
        tied = _tied(config, text, architecture, join)
        has_output = _has_output(config, architecture)
        if weights is None:
            if architecture is None or (join is None and vision is not None):
                raise UnknownShapeError(
                    f'{path}: model_type "{model_type}" isn\'t known and there are no weights in '
                    "safetensors format in its folder, so the model's size isn't known"
                )
            alone = not tied and has_output
            weights = _weights(
                config, join, architecture, language, vision, vision_label, output=alone
            )
        elif tied:
            weights = tuple(weight for weight in weights if not weight.is_output)
        tied = has_output and not any(weight.is_output for weight in weights)
        prefix, tower_prefix = _prefixes(weights)
        return Model(
            architecture=_class(config),
            vocabulary=_vocabulary(weights, language, tied=tied),
            language=replace(
                _stack(prefix, language, weights, architecture),
                activation=activation(config),
                rotary=model_type not in WITHOUT_ROTATION,
                scales_in_fp32=model_type.startswith("gemma"),
                drops_hidden=drops(config, HIDDEN_DROPOUT),
                drops_attention=drops(config, ATTENTION_DROPOUT),
            ),
            vision=_tower(tower_prefix, vision, vision_label, join, config, weights),
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


def _has_output(config: Config, architecture: Architecture | None) -> bool:
    """Whether the configuration's class has a projection to the vocabulary."""
    if architecture is not None and not architecture.output:
        return False
    name = _class(config)
    bare = name.endswith("Model") and not name.endswith(("HeadModel", "ChatModel", "GLMModel"))
    return not bare and not name.endswith("Classification")


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


def _language_type(config: Config, text: Config, join: Join | None) -> str:
    """The type of the language model."""
    named = str(text.get("model_type") or "") if text is not config or join is None else ""
    if join is None or named in LANGUAGES:
        return named
    if join.versions:
        return join.versions.get(str(config.get("version")), "")
    return join.language


def _sizes(
    config: Config,
    label: str,
    architecture: Architecture | None,
    defaults: Mapping[str, Any] | None = None,
) -> ConfigSizes:
    """The sizes of one tower."""
    if architecture is None:
        return ConfigSizes(config, label)
    plain = ConfigSizes(config, label, {**architecture.defaults, **(defaults or {})})
    return ConfigSizes(config, label, plain.defaults, architecture.derive(plain))


def _tied(
    config: Config, text: Config, architecture: Architecture | None, join: Join | None
) -> bool:
    """Whether the output projection is the embedding, by the configuration."""
    for part in (config, text):
        if isinstance(part.get("tie_word_embeddings"), bool):
            return bool(part["tie_word_embeddings"])
    if join is not None and join.tied is not None:
        return join.tied
    return architecture is not None and architecture.tied


def _weights(
    config: Config,
    join: Join | None,
    architecture: Architecture,
    language: ConfigSizes,
    vision: Config | None,
    label: str,
    *,
    output: bool,
) -> tuple[Weight, ...]:
    """All weights, from the templates."""
    declared = language.derive({"tied": int(not output)})
    if join is None:
        return counted([("", architecture.template, declared)])
    tower_config = vision or {}
    tower = TOWERS[_tower_type(tower_config, join)]
    sizes = _sizes(tower_config, label, tower, join.tower_defaults)
    extra = {
        "width": declared["hidden"],
        "merged": _merge(join, sizes, config) ** 2,
        "query_num": ConfigSizes(config, label).get("query_num"),
        "multimodal_projector_bias": int(config.get("multimodal_projector_bias") is not False),
    }
    sizes = sizes.derive(extra)
    parts = [
        (join.tower_prefix, tower.template, sizes),
        ("", join.projector, sizes),
        (join.language_prefix, architecture.template, declared),
    ]
    for key, part in join.beside.items():
        section = config.get(key)
        if isinstance(section, Mapping):
            found = _sizes(section, f"{language.where}{key}.", part)
            parts.append(("", part.template, found.derive({"width": declared["hidden"]})))
    return counted(parts)


def _tower_type(vision: Config, join: Join) -> str:
    named = str(vision.get("model_type") or "")
    return named if named in TOWERS else join.tower


def _merge(join: Join | None, sizes: ConfigSizes, config: Config) -> int:
    """Patches along each side that become one token of the language model."""
    ratio = config.get("downsample_ratio")
    if isinstance(ratio, float) and 0 < ratio <= 1:
        return round(1 / ratio)
    return sizes.get("spatial_merge_size") or (1 if join is None else join.merge)


def _prefixes(weights: tuple[Weight, ...]) -> tuple[str, str]:
    """The prefixes of the layers' names in the language model and in the vision tower."""
    totals: dict[str, int] = {}
    for weight in weights:
        start, star, _ = weight.name.partition(".*.")
        if star:
            totals[f"{start}."] = totals.get(f"{start}.", 0) + weight.total
    towers = [total for total in totals if _TOWER_NAMES & set(total.split("."))]
    language = [total for total in totals if total not in towers]
    return (
        max(language, key=totals.__getitem__, default=""),
        max(towers, key=totals.__getitem__, default=""),
    )


def _vocabulary(weights: tuple[Weight, ...], language: ConfigSizes, *, tied: bool) -> int:
    """Entries of the output projection."""
    declared = language.get("vocab")
    for weight in weights:
        if weight.is_output:
            return weight.shape[0]
    embeddings = [weight.shape[0] for weight in weights if weight.is_embedding]
    return max(embeddings, default=declared) if tied else 0


def _stack(
    prefix: str,
    sizes: ConfigSizes,
    weights: tuple[Weight, ...],
    architecture: Architecture | None,
    patch: int = 0,
    image: int = 0,
    merge: int = 1,
) -> Stack:
    """The layers of one tower."""
    inside = [weight for weight in weights if prefix and weight.name.startswith(prefix)]
    if architecture is None:
        gated = any(gate in weight.name for weight in inside for gate in _GATES)
    else:
        gated = architecture.gated
    experts = sizes.get("experts")
    ffn = (sizes.get("expert_ffn") if experts else 0) or sizes.get("ffn")
    return Stack(
        prefix=prefix,
        layers=sizes["layers"],
        hidden=sizes["hidden"],
        heads=sizes["heads"],
        kv_heads=sizes["kv"],
        head_dim=sizes["head_dim"],
        ffn=ffn or _widest(inside, sizes["hidden"]) or sizes["ffn"],
        gated=gated,
        experts=experts,
        experts_per_token=sizes.get("experts_per_token") if experts else 0,
        patch=patch,
        image=image,
        merge=merge,
    )


def _widest(weights: list[Weight], hidden: int) -> int:
    """Width of the feed-forward part by its weights; 0 where unknown."""
    return max(
        (
            math.prod(weight.shape) // hidden
            for weight in weights
            if len(weight.shape) == 2 and hidden in weight.shape
            if any(part in weight.name for part in _FEED_FORWARD)
        ),
        default=0,
    )


def _tower(
    prefix: str,
    vision: Config | None,
    label: str,
    join: Join | None,
    config: Config,
    weights: tuple[Weight, ...],
) -> Stack | None:
    """The layers of the vision tower; None without a tower, or without its description."""
    if not prefix or (vision is None and join is None):
        return None
    architecture = None if join is None else TOWERS[_tower_type(vision or {}, join)]
    sizes = _sizes(vision or {}, label, architecture, None if join is None else join.tower_defaults)
    try:
        stack = _stack(
            prefix,
            sizes,
            weights,
            architecture,
            patch=sizes.get("patch"),
            image=sizes.get("image"),
            merge=_merge(join, sizes, config),
        )
    except MissingSizeError:
        return None
    if join is None or not join.slice:
        return stack
    found = _section(config, label, ("slice_config",))
    cut = ConfigSizes(*found or ({}, label))
    return replace(stack, slice=join.slice, slices=(cut.get("max_slice_nums") or 9) + 1)
