"""Reads the flags by which the common scripts ask for adapters, so that parameters are frozen."""

from __future__ import annotations

from collections.abc import Iterator

from ..settings import Fact, Origin, Setting
from ..workload import Known, Statement
from .script import Script

SWITCHES = ("use_lora", "use_peft", "q_lora", "use_qlora", "lora_enable")
"""Booleans: MiniCPM-V, Qwen, trl, LLaVA."""
KINDS = ("finetuning_type", "sft_type", "train_type", "tuner_type")
"""Words: LLaMA-Factory, ms-swift 2.x, 3.x and 4.x."""


def read(script: Script) -> Iterator[Statement]:
    """Whether some parameters are frozen, where a flag says so."""
    for name in SWITCHES:
        switch = script.boolean(name)
        if switch is not None and switch.value:
            yield Fact.FROZEN_PARAMETERS, Known(True, switch.origin, switch.source)
            # A model that peft wraps is no PreTrainedModel: transformers/trainer.py then lets DDP
            # look for unused parameters unless it is told otherwise.
            source = f"transformers' default of ddp_find_unused_parameters with {switch.source}"
            yield Setting.FIND_UNUSED_PARAMETERS, Known(True, Origin.DEFAULT, source)
    for name in KINDS:
        kind = script.text(name)
        if kind is not None and "lora" in str(kind.value).lower():
            yield Fact.FROZEN_PARAMETERS, Known(True, kind.origin, kind.source)
