"""Observes a model's types, attention and lack of checkpointing."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ..core.choices import Checkpointing
from ..core.private_names import ATTENTION
from ..core.settings import Fact, Setting, Value
from ..evidence.observations import observations, output_made_by
from ..frameworks.config_files.vocabulary import attention_named, dtype_named

SWITCHED = {"torch", "transformers", "peft", "bitsandbytes"}
"""Packages whose modules checkpoint nothing by default."""


NAMES = ("activation_checkpointing", "gradient_checkpointing")
"""Names of the switch in transformers: of late 5.x, and the older one, removed in 6."""


def facts_of(model: Any) -> dict[str, Value | None]:
    """The attention, the output, and the weights' dtype; None if unknown."""
    facts: dict[str, Value | None] = {}
    with suppress(AttributeError, TypeError, ValueError):  # an unusual model
        floating = (weight for weight in model.parameters() if weight.is_floating_point())
        weight = next(floating, None)
        facts[Fact.LOADED_PRECISION] = None if weight is None else dtype_named(str(weight.dtype))
        facts[Fact.OUTPUT] = output_made_by(model)
        facts[Fact.ATTENTION] = _attention(getattr(model, "config", None))
    return facts


def see_facts(model: Any) -> None:
    """Notes a model's facts before reporting the model, which triggers a new estimate."""
    observations.see(**facts_of(model))


def _attention(config: Any) -> str | None:
    """The kind of attention in a transformers configuration; None for other configurations."""
    kinds = {kind.__module__ for kind in type(config).__mro__}
    if ATTENTION.module in kinds or hasattr(config, ATTENTION.attribute):
        with observations.going_on():
            return attention_named(str(ATTENTION.of(config)))
    return None


def base_of(model: Any) -> Any:
    """The model without peft's adapters."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def checkpoints_nothing(model: Any) -> bool:
    """Whether nothing is checkpointed: the switch is off, and no custom code runs."""
    packages = {type(module).__module__.partition(".")[0] for module in model.modules()}
    switch = next((name for name in NAMES if hasattr(model, f"is_{name}")), None)
    return switch is not None and not getattr(model, f"is_{switch}") and packages <= SWITCHED


def see_no_checkpointing(model: Any) -> None:
    """Notes that nothing is checkpointed, if the model proves it."""
    if Setting.GRADIENT_CHECKPOINTING not in observations.observed and checkpoints_nothing(model):
        observations.see(gradient_checkpointing=Checkpointing.OFF.value)
