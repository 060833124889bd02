"""Applies the preset to Hugging Face's TrainingArguments, and sees the Trainer."""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import Any

import wrapt

from ..deepspeed_config import load, with_settings
from ..settings import Checkpointing, Setting
from . import sightings

HOOKED = ("transformers.training_args", "transformers.trainer")


def install(module: ModuleType) -> None:
    """Wraps `TrainingArguments.__post_init__`, or the Trainer's constructor."""
    if module.__name__ == HOOKED[0]:
        wrapt.wrap_function_wrapper(module, "TrainingArguments.__post_init__", _complete)
    else:
        wrapt.wrap_function_wrapper(module, "Trainer.__init__", _construct)


def _complete(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Sets the arguments before they check themselves and configure DeepSpeed from them."""
    settings = sightings.overrides()
    if Setting.GRADIENT_CHECKPOINTING in settings:
        mode = settings[Setting.GRADIENT_CHECKPOINTING]
        instance.gradient_checkpointing = mode != Checkpointing.OFF
        if instance.gradient_checkpointing:
            instance.gradient_checkpointing_kwargs = {
                **_mapping(instance.gradient_checkpointing_kwargs),
                "use_reentrant": mode == Checkpointing.REENTRANT,
            }
    if Setting.MICRO_BATCH in settings:
        instance.per_device_train_batch_size = settings[Setting.MICRO_BATCH]
    if Setting.ACCUMULATION in settings:
        instance.gradient_accumulation_steps = settings[Setting.ACCUMULATION]
    if instance.deepspeed:
        instance.deepspeed = with_settings(load(instance.deepspeed), settings)
    return wrapped(*args, **kwargs)


def _mapping(value: Any) -> dict[str, Any]:
    """The kwargs that a script gives as a dict, or a command line as JSON."""
    import json

    return dict(json.loads(value) if isinstance(value, str) else value or {})


def _construct(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    wrapped(*args, **kwargs)
    reference = weakref.ref(instance)

    def steps() -> int | None:
        trainer = reference()
        return None if trainer is None else int(trainer.state.global_step)

    sightings.count_steps(steps)
    sightings.see_model(instance.model)
    sightings.see(
        micro_batch=instance.args.per_device_train_batch_size,
        accumulation=instance.args.gradient_accumulation_steps,
        accumulates=instance.args.gradient_accumulation_steps > 1,
    )
