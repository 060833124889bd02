"""Observes what a model is like, beyond its weights: types, attention, no checkpointing."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ..core.settings import Checkpointing, Setting
from ..evidence.observations import Observations
from ..workload.readers.vocabulary import attention_named, dtype_named

SWITCHED = {"torch", "transformers", "peft", "bitsandbytes"}
"""Packages whose modules checkpoint nothing unless they are told to."""


def see_facts(model: Any, observations: Observations) -> None:
    """Notes the attention, and the type in which the weights are.

    It is seen before the model, whose report has the launcher estimate again.
    """
    with suppress(AttributeError, TypeError, ValueError):  # an unusual model
        floating = (weight for weight in model.parameters() if weight.is_floating_point())
        weight = next(floating, None)
        config = getattr(model, "config", None)
        observations.see(
            attention=attention_named(str(getattr(config, "_attn_implementation", ""))),
            loaded_precision=None if weight is None else dtype_named(str(weight.dtype)),
        )


def see_no_checkpointing(model: Any, observations: Observations) -> None:
    """Notes that nothing is checkpointed: the model's switch is off, and no code of others runs."""
    if Setting.GRADIENT_CHECKPOINTING in observations.observed:
        return
    packages = {type(module).__module__.partition(".")[0] for module in model.modules()}
    if not getattr(model, "is_gradient_checkpointing", True) and packages <= SWITCHED:
        observations.see(gradient_checkpointing=Checkpointing.OFF.value)
