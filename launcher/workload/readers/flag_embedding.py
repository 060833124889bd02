"""Reads settings that FlagEmbedding's modules fix without flags.

Checked in its version 1.4.2: FlagEmbedding/finetune/*/decoder_only/*/arguments.py, and
FlagEmbedding/abc/finetune/embedder/AbsModeling.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...core.certainty import Origin
from ...core.choices import Adapter
from ...core.settings import Fact, Setting
from ...core.workload import Known, Statement, default_of
from ..script.script import Script

TARGETS = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"

_default = partial(default_of, "FlagEmbedding's")


def read(script: Script) -> Iterator[Statement]:
    """Default adapters, DDP's flag, and whether the batch is part of the loss."""
    if script.owner != "FlagEmbedding":
        return
    # Its wrapper class keeps the Trainer from recognizing the model as transformers'.
    yield Setting.FIND_UNUSED_PARAMETERS, _default("ddp_find_unused_parameters", value=True)
    if "embedder" in script.program:
        source = "FlagEmbedding's embedders take the other passages of a batch for wrong ones"
        yield Fact.LOSS_SPANS_BATCH, Known(True, Origin.DEFAULT, source)
    switch = script.boolean("use_lora")
    if "decoder_only" in script.program and (switch is None or switch.value):
        yield Fact.ADAPTER, _default("use_lora", Adapter.LORA.value)
        yield Fact.FROZEN_PARAMETERS, _default("use_lora", value=True)
        yield Fact.LORA_RANK, _default("lora_rank", 64)
        yield Fact.LORA_TARGETS, _default("target_modules", TARGETS)
