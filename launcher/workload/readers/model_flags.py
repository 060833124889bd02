"""Reads which model the arguments name, which of its parts are trained, the size of its images."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ...core.choices import Adapter, Precision
from ...core.model import Model
from ...core.settings import Fact
from ...core.workload import Known, Origin, Statement
from ...frameworks.config_files.vocabulary import dtype_named
from ...frameworks.framework import Argument, Script
from ..models.from_folder import read_model
from .peft_flags import adapter_of

FROM_SCRATCH = "config_name"
"""Flag of transformers' examples for a model initialized from a configuration.

Hydra's flag of that name differs, so it counts only for a folder, or beside `AutoConfig`.
"""

NAMING = (
    "model_name_or_path",
    "model_id_or_path",
    "pretrained_model_name_or_path",
    "base_model",
    "model_path",
    "model_id",
    "model_name",
    "model",
    "model_type",
    FROM_SCRATCH,
)
"""Flags of transformers' examples, ms-swift, trl, LLaMA-Factory and models' own scripts.

`model_type` was a registry name in ms-swift 2; it counts only if it is a folder.
"""
UNSURE = ("model_type", FROM_SCRATCH)
"""Flags with other meanings too."""
VISION, LANGUAGE = Fact.VISION_TRAINED, Fact.LANGUAGE_TRAINED
TRAINED: tuple[tuple[Fact, bool, tuple[str, ...]], ...] = (
    (VISION, False, ("freeze_vit", "freeze_vision_tower", "freeze_vision", "fix_vit")),
    (VISION, True, ("tune_vision", "tune_mm_vision", "train_vision", "unfreeze_mm_vision_tower")),
    (LANGUAGE, False, ("freeze_llm", "freeze_language_model", "freeze_language")),
    (LANGUAGE, True, ("tune_llm", "tune_mm_llm", "train_llm")),
)
"""Fact, whether its flags name trained parts (MiniCPM-V, Qwen-VL, LLaVA) instead of frozen ones
(ms-swift, LLaMA-Factory, InternVL), and the flags."""


def read_model_of(script: Script) -> tuple[Model | None, tuple[str, ...]]:
    """The model in the script's arguments, and notes about it.

    Raises:
        LaunchError: one of the model's files is broken.
    """
    _, named = _named(script)
    if named is None:
        return None, ()
    notes: list[str] = []
    model = read_model(_folder(named), notes, script.environment)
    return model, tuple(f"{named.source}: {note}" for note in notes)


def from_scratch(script: Script, model: Model | None) -> Iterator[Statement]:
    """Dtype of a model from scratch: its configuration's, or fp32, in every version.

    transformers/modeling_utils.py, `_from_config`.
    """
    flag, named = _named(script)
    if flag == FROM_SCRATCH and named is not None and model is not None:
        kind = dtype_named(model.stored) or Precision.FP32
        source = f"the type in {model.source}, by {named.source}"
        yield Fact.LOADED_PRECISION, Known(kind.value, Origin.DEFAULT, source)


def _named(script: Script) -> tuple[str, Argument | None]:
    """The flag that names the model, and its value."""
    for flag in NAMING:
        named = script.text(flag)
        if named is None or not isinstance(named.value, str):
            continue
        is_sure = flag not in UNSURE or (flag == FROM_SCRATCH and "AutoConfig" in script.names)
        if is_sure or os.path.isdir(_folder(named)):  # noqa: PTH112 - a name may be too long
            return flag, named
    return "", None


def _folder(named: Argument) -> str:
    """The folder or hub name of a model; a configuration may be given by its file."""
    return str(named.value).removesuffix("/config.json")


def read(script: Script) -> Iterator[Statement]:
    """The trained towers; for a language model with adapters see `_part`."""
    parts = script.text("mm_tunable_parts")
    if parts is not None:  # LLaVA-NeXT's, which takes precedence over the switches
        trained = str(parts.value).split(",")
        yield from _part(script, VISION, parts, trained="mm_vision_tower" in trained)
        yield from _part(script, LANGUAGE, parts, trained="mm_language_model" in trained)
        return
    for fact, when, names in TRAINED:
        for name in names:
            switch = script.boolean(name)
            if switch is not None:
                yield from _part(script, fact, switch, trained=bool(switch.value) is when)
    yield from _backbone(script)
    projector = script.on("tune_mm_mlp_adapter")
    if projector is not None:  # LLaVA's first stage trains nothing else
        yield from _part(script, VISION, projector, trained=False)
        yield from _part(script, LANGUAGE, projector, trained=False)


def _part(script: Script, fact: Fact, flag: Argument, *, trained: bool) -> Iterator[Statement]:
    """One part of the model.

    A language model frozen by a script to add adapters is trained by the adapters; in a framework
    (ms-swift, LLaMA-Factory) freezing also prevents adapters.
    """
    if not trained:
        yield Fact.FROZEN_PARAMETERS, flag.known(value=True)
        adapter = adapter_of(script)
        adapted = adapter is not None and adapter.value == Adapter.LORA
        if fact is LANGUAGE and adapted and script.owner is None:
            return
    yield fact, flag.known(trained)


def _backbone(script: Script) -> Iterator[Statement]:
    """`freeze_backbone`: InternVL's vision tower, LLaVA's language model."""
    switch = script.boolean("freeze_backbone")
    if switch is None:
        return
    if "vision_tower" in script.flags or "llava" in script.names:
        yield from _part(script, LANGUAGE, switch, trained=not switch.value)
    elif {"freeze_mlp", "freeze_llm", "vision_path"} & script.flags.keys():
        yield from _part(script, VISION, switch, trained=not switch.value)
    elif switch.value:
        yield Fact.FROZEN_PARAMETERS, switch.known(value=True)


def image_statements(script: Script, model: Model | None) -> Iterator[Statement]:
    """Maximum patches in an image, if model and script determine it.

    A tower for any size (Qwen-VL's) takes up to `max_pixels`; a tower of a fixed size (InternVL's)
    takes the image in tiles plus a small copy of the whole; so does one with slices (MiniCPM-V's).
    """
    tower = None if model is None else model.vision
    if tower is None or not tower.patch:
        return
    if tower.slice:
        most = script.number("max_slice_nums")
        if most is not None:
            yield _patches(most, (int(most.value) + 1) * (tower.slice // tower.patch) ** 2)
        return
    if tower.image:
        tiles = script.number("max_dynamic_patch")
        size = script.number("force_image_size")
        whole = script.on("use_thumbnail") is not None
        if tiles is not None:
            side = (int(size.value) if size is not None else tower.image) // tower.patch
            yield _patches(tiles, (int(tiles.value) + whole) * side**2)
        return
    pixels = script.first_number("max_pixels", "image_max_pixels")
    variable = script.owner.pixels if script.owner else ""
    text = script.environment.get(variable, "")
    if pixels is None and text.isdecimal() and int(text):
        pixels = Argument(int(text), Origin.CONFIG, f"${variable}")
    if pixels is not None:
        yield _patches(pixels, int(pixels.value) // tower.patch**2)


def _patches(flag: Argument, patches: int) -> Statement:
    return Fact.IMAGE_PATCHES, Known(patches, flag.origin, f"{flag.source}, one image")
