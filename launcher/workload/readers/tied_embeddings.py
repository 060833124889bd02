"""Detects tied embeddings that are trained as separate copies beside adapters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...core.model import Model
from ...core.settings import Fact
from ...core.workload import Statement, Workload
from ...frameworks.framework import Script

ENDS = {"lm_head", "embed_tokens", "wte", "embed_out", "embed_in", "word_embeddings"}
"""Names of input and output embeddings (modeling files of transformers)."""


def is_end(module: str) -> bool:
    """Whether a module name is the input or output embedding."""
    return module.rpartition(".")[2] in ENDS


def statements(script: Script, workload: Workload, model: Model | None) -> Iterator[Statement]:
    """States full training of an embedding that the model ties and peft unties."""
    saved = workload.known.get(Fact.LORA_SAVED)
    kept = script.boolean("ensure_weight_tying")
    if saved is None or model is None or script.decides("ensure_weight_tying"):
        return
    is_kept = kept is not None and kept.value
    if model.tied and any(map(is_end, str(saved.value).split(","))) and not is_kept:
        yield Fact.TIED_SAVED, replace(saved, value=True)
