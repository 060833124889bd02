"""Reads which parts of a vision-language model are trained, and the size of its images."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.choices import Adapter
from ...core.model import Model
from ...core.settings import Fact
from ...core.workload import Known, Origin, Statement
from ...frameworks.arguments import Argument
from ...frameworks.framework import Script
from .peft_flags import adapter_of

VISION, LANGUAGE = Fact.VISION_TRAINED, Fact.LANGUAGE_TRAINED
FLAGS: tuple[tuple[Fact, bool, tuple[str, ...]], ...] = (
    (VISION, False, ("freeze_vit", "freeze_vision_tower", "freeze_vision", "fix_vit")),
    (VISION, True, ("tune_vision", "tune_mm_vision", "train_vision", "unfreeze_mm_vision_tower")),
    (LANGUAGE, False, ("freeze_llm", "freeze_language_model", "freeze_language")),
    (LANGUAGE, True, ("tune_llm", "tune_mm_llm", "train_llm")),
)
"""Fact, whether its flags name trained parts (MiniCPM-V, Qwen-VL, LLaVA) instead of frozen ones
(ms-swift, LLaMA-Factory, InternVL), and the flags."""


def read(script: Script) -> Iterator[Statement]:
    """The trained towers; for a language model with adapters see `_part`."""
    parts = script.text("mm_tunable_parts")
    if parts is not None:  # LLaVA-NeXT's, which takes precedence over the switches
        trained = str(parts.value).split(",")
        yield from _part(script, VISION, parts, trained="mm_vision_tower" in trained)
        yield from _part(script, LANGUAGE, parts, trained="mm_language_model" in trained)
        return
    for fact, when, names in FLAGS:
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
