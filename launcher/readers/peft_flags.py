"""Reads the flags by which the common scripts ask for adapters, freezing and quantization."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..settings import Adapter, Fact, Origin, Setting
from ..workload import Known, Statement
from .script import Given, Script

SWITCHES = ("use_lora", "use_peft", "q_lora", "use_qlora", "lora_enable")
"""Booleans: MiniCPM-V, Qwen, trl, LLaVA."""
KINDS = ("finetuning_type", "sft_type", "train_type", "tuner_type")
"""Words: LLaMA-Factory, ms-swift 2.x, 3.x and 4.x."""
RANKS = ("lora_rank", "lora_r")
TARGETS = ("lora_target_modules", "lora_target", "target_modules")
SAVED = ("lora_modules_to_save", "modules_to_save", "additional_target")
ALL = ("all", "all-linear", "all_linear")
DEFAULTS = ("default", "auto", "embedding")
"""Words of ms-swift for targets that depend on the model."""
BITS = ("quantization_bit", "quant_bits", "bits")
FROZEN = (
    (
        Fact.VISION_TRAINED,
        ("freeze_vit", "freeze_vision_tower", "freeze_vision", "freeze_backbone"),
    ),
    (Fact.LANGUAGE_TRAINED, ("freeze_llm", "freeze_language_model", "freeze_language")),
)
TUNED = (
    (
        Fact.VISION_TRAINED,
        ("tune_vision", "tune_mm_vision", "train_vision", "unfreeze_mm_vision_tower"),
    ),
    (Fact.LANGUAGE_TRAINED, ("tune_llm", "tune_mm_llm", "train_llm")),
)
"""MiniCPM-V and Qwen-VL name what is trained, ms-swift and LLaMA-Factory what is frozen."""


def read(script: Script) -> Iterator[Statement]:
    """Adapters with rank and targets, frozen towers, bits of quantized weights."""
    yield from _adapters(script)
    yield from _lora(script)
    yield from _towers(script)
    yield from _bits(script)


def _adapters(script: Script) -> Iterator[Statement]:
    for name in SWITCHES:
        switch = script.boolean(name)
        if switch is None:
            continue
        if not switch.value:
            if name in ("use_lora", "use_peft", "lora_enable"):
                yield Fact.ADAPTER, _known(switch, Adapter.NONE.value)
            continue
        yield Fact.ADAPTER, _known(switch, Adapter.LORA.value)
        yield Fact.FROZEN_PARAMETERS, _known(switch, True)
        # A model that peft wraps is no PreTrainedModel: transformers/trainer.py then lets DDP
        # look for unused parameters unless it is told otherwise.
        source = f"transformers' default of ddp_find_unused_parameters with {switch.source}"
        yield Setting.FIND_UNUSED_PARAMETERS, Known(True, Origin.DEFAULT, source)
    for name in KINDS:
        kind = script.text(name)
        if kind is None:
            continue
        word = str(kind.value).lower()
        if "lora" in word:
            yield Fact.ADAPTER, _known(kind, Adapter.LORA.value)
            yield Fact.FROZEN_PARAMETERS, _known(kind, True)
        elif word == "full":
            yield Fact.ADAPTER, _known(kind, Adapter.NONE.value)


def _known(given: Given, value: str | int | bool) -> Known:
    return Known(value, given.origin, given.source)


def _lora(script: Script) -> Iterator[Statement]:
    for name in RANKS:
        rank = script.number(name) if script.text(name) else None
        if rank is not None:
            yield Fact.LORA_RANK, _known(rank, rank.value)
            break
    for fact, names in ((Fact.LORA_TARGETS, TARGETS), (Fact.LORA_SAVED, SAVED)):
        for name in names:
            given = script.text(name)
            words = [] if given is None else words_of(given)
            if given is None or not words:
                continue
            first = words[0].lower()
            if first in ALL:
                yield fact, _known(given, "all-linear")
            elif first not in DEFAULTS:
                yield fact, _known(given, ",".join(words))
            break


def words_of(given: Given) -> list[str]:
    """A list that is given as words, separated by commas, as JSON or as YAML."""
    if isinstance(given.value, list):
        return [str(one) for one in given.value]
    words = list(given.words) or [str(given.value)]
    if words[0].startswith("["):
        try:
            return [str(one) for one in json.loads(" ".join(words))]
        except json.JSONDecodeError:
            return []
    return [one for word in words for one in word.split(",") if one]


def _towers(script: Script) -> Iterator[Statement]:
    for table, when in ((FROZEN, False), (TUNED, True)):
        for fact, names in table:
            for name in names:
                switch = script.boolean(name)
                if switch is not None:
                    trained = bool(switch.value) is when
                    yield fact, _known(switch, trained)
                    if not trained:
                        yield Fact.FROZEN_PARAMETERS, _known(switch, True)


def _bits(script: Script) -> Iterator[Statement]:
    for name, bits in (("load_in_4bit", 4), ("load_in_8bit", 8), ("q_lora", 4), ("use_qlora", 4)):
        switch = script.boolean(name)
        if switch is not None and switch.value:
            yield Fact.QUANTIZATION_BITS, _known(switch, bits)
            return
    for name in BITS:
        given = script.number(name) if script.text(name) else None
        if given is not None and given.value in (2, 3, 4, 8):
            yield Fact.QUANTIZATION_BITS, _known(given, given.value)
            return
