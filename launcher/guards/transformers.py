"""Applies the preset to Hugging Face's TrainingArguments, and observes the Trainer."""

from __future__ import annotations

import os
import warnings
import weakref
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ..core.choices import Checkpointing, Framework
from ..core.settings import Fact, Setting, Value
from ..evidence.observations import Observations
from ..evidence.worker_messages import Boundary
from ..workload.config_files import edited_deepspeed
from ..workload.config_files.vocabulary import dtype_named, optimizer_named
from . import batches, first_batch, fsdp, settling
from .asked_facts import trainer_facts
from .enforced import overrides, replaced
from .loss import loss_of
from .model_facts import NAMES, see_facts, see_no_checkpointing
from .step_times import times_of

HOOKED = ("transformers.training_args", "transformers.trainer")
SETTABLE = (
    Setting.ZERO_STAGE,
    Setting.OFFLOAD,
    Setting.GRADIENT_CHECKPOINTING,
    Setting.MICRO_BATCH,
    Setting.ACCUMULATION,
)
"""What TrainingArguments can still be given before they are validated."""


def install(module: ModuleType, observations: Observations) -> None:
    """Wraps `TrainingArguments.__post_init__`, or the Trainer's constructor."""
    if module.__name__ == HOOKED[0]:
        complete = partial(_complete, observations)
        wrapt.wrap_function_wrapper(module, "TrainingArguments.__post_init__", complete)
    else:
        wrapt.wrap_function_wrapper(module, "Trainer.__init__", partial(_construct, observations))
        wrapt.wrap_function_wrapper(module, "Trainer.train", partial(_train, observations))
        step = partial(_training_step, observations)
        wrapt.wrap_function_wrapper(module, "Trainer.training_step", step)


def _complete(
    observations: Observations, wrapped: Any, instance: Any, args: Any, kwargs: Any
) -> Any:
    """Sets the arguments before they are validated and passed to DeepSpeed."""
    settings = _settled(instance, observations)
    if Setting.GRADIENT_CHECKPOINTING in settings:
        _set_checkpointing(instance, Checkpointing(str(settings[Setting.GRADIENT_CHECKPOINTING])))
    if Setting.MICRO_BATCH in settings:
        instance.per_device_train_batch_size = settings[Setting.MICRO_BATCH]
    if Setting.ACCUMULATION in settings:
        instance.gradient_accumulation_steps = settings[Setting.ACCUMULATION]
    if instance.deepspeed:
        instance.deepspeed = edited_deepspeed.edited(instance.deepspeed, settings)
    elif Setting.ZERO_STAGE in settings:
        instance.deepspeed = edited_deepspeed.new(settings)
    elif Setting.RESHARD_AFTER_FORWARD in settings and not instance.fsdp:
        os.environ.update(fsdp.VARIABLES)
    return wrapped(*args, **kwargs)


def _settled(arguments: Any, observations: Observations) -> dict[Setting, Value]:
    """What to set in the arguments; the plan's alone where they are odd, which others say."""
    try:
        facts = trainer_facts(arguments)
    except (AttributeError, TypeError, ValueError):
        return overrides()
    framework = Framework.TRANSFORMERS.value
    where = Boundary.TRAINING_ARGUMENTS
    return settling.settings_at(where, SETTABLE, facts, observations, framework=framework)


def _set_checkpointing(arguments: Any, mode: Checkpointing) -> None:
    """Sets the switch and its kwargs under every name that this version has for them.

    A switch that is off stays off where the plan changes only the implementation: the model then
    calls `checkpoint` itself, where the preset is applied, and may lack the Trainer's switch.
    """
    names = [name for name in NAMES if hasattr(arguments, name)]
    was_on = any(getattr(arguments, name) for name in names)
    is_on = mode is not Checkpointing.OFF and (was_on or _is_turned_on())
    for name in names:
        setattr(arguments, name, is_on)
        kwargs = _mapping(getattr(arguments, f"{name}_kwargs"))
        kwargs["use_reentrant"] = mode is Checkpointing.REENTRANT
        if is_on:
            setattr(arguments, f"{name}_kwargs", kwargs)


def _is_turned_on() -> bool:
    """Whether the plan turns on checkpointing that the script doesn't, as far as is known, use."""
    name = Setting.GRADIENT_CHECKPOINTING
    asked = overrides().get(name, Checkpointing.OFF)
    return asked != Checkpointing.OFF == replaced().get(name, Checkpointing.OFF)


def _can_checkpoint(model: Any) -> bool:
    """Whether the Trainer could switch checkpointing on in a model.

    Models without the method, or whose `supports_gradient_checkpointing` is false, would raise.
    """
    has_switch = any(hasattr(model, f"{name}_enable") for name in NAMES)
    return has_switch and getattr(model, "supports_gradient_checkpointing", True)


def _mapping(value: Any) -> dict[str, Any]:
    """The kwargs, given as a dict by a script or as JSON on a command line."""
    import json

    return dict(json.loads(value) if isinstance(value, str) else value or {})


def _construct(
    observations: Observations, wrapped: Any, instance: Any, args: Any, kwargs: Any
) -> Any:
    wrapped(*args, **kwargs)
    reference = weakref.ref(instance)

    def steps() -> int | None:
        trainer = reference()
        return None if trainer is None else int(trainer.state.global_step)

    observations.count_steps(steps)
    if _is_turned_on() and not _can_checkpoint(instance.model):
        kind = type(instance.model).__name__
        warnings.warn(
            f"{kind} has no gradient checkpointing to switch on: it stays off", stacklevel=1
        )
        for name in NAMES:
            if hasattr(instance.args, name):
                setattr(instance.args, name, False)
        observations.see(gradient_checkpointing=Checkpointing.OFF.value)
    with suppress(AttributeError, TypeError, ValueError):  # as another version has it
        _see_arguments(instance, observations)
    observations.see(
        micro_batch=instance.args.per_device_train_batch_size,
        accumulation=instance.args.gradient_accumulation_steps,
    )
    observations.see_model(instance.model)  # the last: then the launcher estimates again


def _train(observations: Observations, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Notes the models that a Trainer holds in addition, and marks how many steps it has done."""
    import torch

    for value in list(vars(instance).values()):
        for held in value if isinstance(value, list | tuple) else (value,):
            if isinstance(held, torch.nn.Module):
                observations.see_model(held, is_trained=False)
    if getattr(instance, "ref_model", instance) is None:
        observations.see(reference_model=False)
    times = times_of(observations)
    times.has_trainer = True
    try:
        result = wrapped(*args, **kwargs)
    finally:
        times.has_trainer = False
    with suppress(Exception):  # no counter ends a training that has succeeded
        observations.progress.moved(observations.steps_of_all())
    return result


def _training_step(
    observations: Observations, wrapped: Any, instance: Any, args: Any, kwargs: Any
) -> Any:
    """Notes what every step is trained on, and the length of the first batch."""
    with suppress(Exception):  # a batch may be anything
        batch = args[1] if len(args) > 1 else kwargs["inputs"]
        times_of(observations).batch(*batches.size_of(batch, instance.args.train_batch_size))
        if not instance.state.global_step and Fact.SEQUENCE_LENGTH not in observations.observed:
            first_batch.see_length(batch, observations)
    return wrapped(*args, **kwargs)


def _see_arguments(trainer: Any, observations: Observations) -> None:
    """Notes what the memory estimate asks for, as the Trainer really has it."""
    arguments = trainer.args
    see_facts(trainer.model, observations)
    optimizer = optimizer_named(str(arguments.optim)) if trainer.optimizer is None else None
    loaded = observations.observed.get(Fact.LOADED_PRECISION)
    half = dtype_named(str(getattr(trainer.accelerator, "mixed_precision", "")))
    observations.see(
        # Without autocast the weights' own type decides, unless an engine casts them.
        precision=half or (None if arguments.deepspeed else loaded),
        optimizer=optimizer,
        loss=loss_of(trainer),
    )
    if not any(getattr(arguments, name, False) for name in NAMES):
        see_no_checkpointing(trainer.model, observations)
