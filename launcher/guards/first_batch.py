"""Observes the text length and the kind of loss in the first training batch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..core.settings import Setting
from ..evidence.observations import observations
from .batches import size_of
from .loss import loss_of_labels
from .model_facts import see_no_checkpointing
from .step_times import times


def watch(engine: Any) -> None:
    """Observes an engine's first batch, and the size of every batch.

    The hook is removed if a Trainer reports the sizes itself.
    """
    is_first = True

    def see(module: Any, _args: Any, kwargs: Mapping[str, Any]) -> None:
        nonlocal is_first
        if not module.training:
            return
        if times.has_trainer:
            handle.remove()
        else:
            with suppress(Exception):  # a batch may be anything
                times.batch(*size_of(kwargs, int(engine.train_micro_batch_size_per_gpu())))
        if is_first:
            is_first = False
            with suppress(AttributeError, TypeError):  # of an unusual model
                see_no_checkpointing(engine.module)
                if kwargs.get("labels") is not None:
                    observations.see(loss=loss_of_labels(engine.module))
                see_length(kwargs)

    handle = engine.register_forward_pre_hook(see, with_kwargs=True)


def see_length(batch: Mapping[str, Any]) -> None:
    """Notes the text length of rank 0's batch, in tokens.

    Packed texts count with their share of the row; both texts of a pair have the length of a row.
    """
    words = batch.get("input_ids")
    if words is None or words.ndim != 2 or os.environ.get("RANK") != "0":
        return
    texts = int(observations.observed.get(Setting.MICRO_BATCH) or len(words))
    observations.see(sequence_length=min(words.shape[1], words.numel() // texts) or None)
