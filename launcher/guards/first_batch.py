"""Observes how long the sequences of the first batch are, as rank 0 gets it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..core.settings import Setting
from ..evidence.observations import Observations


def watch(engine: Any, observations: Observations) -> None:
    """Waits for the first batch that a module gets in training; then the module is as before."""

    def see(module: Any, _args: Any, kwargs: Mapping[str, Any]) -> None:
        if module.training:
            handle.remove()
            see_batch(kwargs, observations)

    handle = engine.register_forward_pre_hook(see, with_kwargs=True)


def see_batch(batch: Any, observations: Observations) -> None:
    """Notes the length of a batch's texts, in tokens.

    Texts that are laid end to end in one row are as long as their share of it; a row for each text
    of a pair is no longer than the others.
    """
    words = batch.get("input_ids") if isinstance(batch, Mapping) else None
    if os.environ.get("RANK") != "0" or getattr(words, "ndim", 0) != 2:
        return
    assert words is not None
    texts = int(observations.observed.get(Setting.MICRO_BATCH) or len(words))
    observations.see(sequence_length=min(words.shape[1], words.numel() // texts) or None)
