"""Reads what LLaMA-Factory leaves to its own defaults (src/llamafactory/hparams)."""

from __future__ import annotations

from collections.abc import Iterator

from ..settings import Adapter, Fact, Origin
from ..workload import Known, Statement
from .script import Script


def read(script: Script) -> Iterator[Statement]:
    """Length, adapters, targets and rank where neither file nor flag names them."""
    if not {"llamafactory", "llmtuner"} & script.names or script.text("model_name_or_path") is None:
        return
    whose = "LLaMA-Factory's default of"
    for fact, name, value in (
        (Fact.SEQUENCE_LENGTH, "cutoff_len", 2048),
        (Fact.ADAPTER, "finetuning_type", Adapter.LORA.value),
        (Fact.LORA_RANK, "lora_rank", 8),
        (Fact.LORA_TARGETS, "lora_target", "all-linear"),
    ):
        if script.text(name) is None:
            yield fact, Known(value, Origin.DEFAULT, f"{whose} {name}")
    if script.text("finetuning_type") is None:
        yield Fact.FROZEN_PARAMETERS, Known(True, Origin.DEFAULT, f"{whose} finetuning_type")
