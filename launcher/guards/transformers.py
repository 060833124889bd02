"""Applies the preset to TrainingArguments, and observes the Trainer."""

from __future__ import annotations

import inspect
import warnings
import weakref
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ..core.choices import Checkpointing, Engine, Framework
from ..core.settings import Fact, Setting, Value
from ..evidence.observations import observations
from ..evidence.worker_messages import Boundary
from ..frameworks.config_files.vocabulary import dtype_named, optimizer_named
from . import batches, loading, plan_query, settling, trainer_arguments
from .batches import loss_of
from .model_facts import NAMES, checkpoints_nothing, facts_of, see_facts, see_no_checkpointing
from .settling import overrides
from .step_times import times
from .trainer_arguments import is_turned_on, trainer_facts

HOOKED = ("transformers.training_args", "transformers.trainer")
SUPPORTED = ("trl", "__main__")
"""Packages of supported trainer classes: subclasses elsewhere may have custom losses."""
ON_POLICY = ("GKDTrainer", "GOLDTrainer")
"""Trainers that mask the padding in the model's output."""
GLOBAL = ("dapo", "cispo", "vespo")
"""GRPO losses divided by the number of tokens on all ranks."""


def install(module: ModuleType) -> None:
    """Wraps `TrainingArguments.__post_init__`, or the Trainer's constructor."""
    if module.__name__ == HOOKED[0]:
        wrapt.wrap_function_wrapper(module, "TrainingArguments.__post_init__", _complete)
    else:
        wrapt.wrap_function_wrapper(module, "Trainer.__init__", _construct)
        wrapt.wrap_function_wrapper(module, "Trainer.train", _train)
        wrapt.wrap_function_wrapper(module, "Trainer.training_step", _training_step)


def _complete(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Applies settings before the arguments are validated and passed to DeepSpeed."""
    trainer_arguments.give(instance, _settled(instance))
    wrapped(*args, **kwargs)
    loading.put_in_force(
        loading.InForce(
            weakref.ref(instance),
            Framework.TRANSFORMERS,
            partial(trainer_facts, validated=True),
            trainer_arguments.settable_late,
            trainer_arguments.give_late,
        )
    )


def _settled(arguments: Any) -> dict[Setting, Value]:
    """Settings for the arguments; only the plan's if the arguments are invalid."""
    try:
        facts = trainer_facts(arguments)
    except (AttributeError, TypeError, ValueError):
        return overrides()
    answer = settling.answer_at(
        Boundary.TRAINING_ARGUMENTS,
        trainer_arguments.SETTABLE,
        facts,
        framework=Framework.TRANSFORMERS.value,
    )
    return settling.settings_of(answer)


def _can_checkpoint(model: Any) -> bool:
    """Whether the Trainer can turn on a model's checkpointing.

    Models without the method, or with false `supports_gradient_checkpointing`, would raise.
    """
    has_switch = any(hasattr(model, f"{name}_enable") for name in NAMES)
    return has_switch and getattr(model, "supports_gradient_checkpointing", True)


def _construct(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    arguments = inspect.signature(wrapped).bind_partial(*args, **kwargs).arguments
    _settle(instance, arguments)
    wrapped(*args, **kwargs)
    reference = weakref.ref(instance)

    def steps() -> int | None:
        trainer = reference()
        return None if trainer is None else int(trainer.state.global_step)

    observations.count_steps(steps)
    if is_turned_on() and not _can_checkpoint(instance.model):
        kind = type(instance.model).__name__
        warnings.warn(
            f"{kind} has no gradient checkpointing to switch on: it stays off", stacklevel=1
        )
        for name in NAMES:
            if hasattr(instance.args, name):
                setattr(instance.args, name, False)
        observations.see(gradient_checkpointing=Checkpointing.OFF.value)
    with suppress(AttributeError, TypeError, ValueError):  # as another version has it
        _see_arguments(instance)
    observations.see(
        micro_batch=instance.args.per_device_train_batch_size,
        accumulation=instance.args.gradient_accumulation_steps,
    )
    observations.see_model(instance.model)  # the last: then the launcher estimates again


def _settle(trainer: Any, passed: Mapping[str, Any]) -> None:
    """Changes a Trainer's arguments based on facts that only its model has."""
    import torch

    model, arguments = passed.get("model"), passed.get("args")
    if not isinstance(model, torch.nn.Module) or not observations.is_first(model):
        return
    if arguments is None:
        return
    try:
        facts = {**facts_of(model), **trainer_facts(arguments, validated=True)}
        facts |= plan_query.facts_of_trainer(passed, arguments)
        facts[Fact.LOSS] = loss_of(trainer, model, arguments, passed.get("compute_loss_func"))
    except (AttributeError, TypeError, ValueError):  # the Trainer itself fails
        return
    if facts.get(Fact.ENGINE) != Engine.DEEPSPEED and facts[Setting.PRECISION] is None:
        facts[Setting.PRECISION] = facts[Fact.LOADED_PRECISION]
    if not any(getattr(arguments, name, False) for name in NAMES) and checkpoints_nothing(model):
        facts[Setting.GRADIENT_CHECKPOINTING] = Checkpointing.OFF.value
    answer = settling.answer_at(
        Boundary.TRAINER,
        trainer_arguments.settable_late(arguments, model),
        facts,
        framework=Framework.TRANSFORMERS.value,
        model=model,
    )
    trainer_arguments.give_late(arguments, settling.changes_of(answer))


def _train(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Notes a Trainer's other models and its number of steps."""
    import torch

    for value in list(vars(instance).values()):
        for part in value if isinstance(value, list | tuple) else (value,):
            if isinstance(part, torch.nn.Module):
                observations.see_model(part, is_trained=False)
    if getattr(instance, "ref_model", instance) is None:
        observations.see(reference_model=False)
    times.has_trainer = True
    try:
        result = wrapped(*args, **kwargs)
    finally:
        times.has_trainer = False
    with suppress(Exception):  # no counter ends a training that has succeeded
        observations.progress.moved(observations.steps_of_all())
    return result


def _training_step(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Counts each step's samples and tokens, and notes the first batch's length."""
    with suppress(Exception):  # a batch may be anything
        batch = args[1] if len(args) > 1 else kwargs["inputs"]
        times.batch(*batches.size_of(batch, instance.args.train_batch_size))
        if not instance.state.global_step and Fact.SEQUENCE_LENGTH not in observations.observed:
            batches.see_length(batch)
    return wrapped(*args, **kwargs)


def _see_arguments(trainer: Any) -> None:
    """Notes the Trainer's facts for the memory estimate."""
    arguments = trainer.args
    see_facts(trainer.model)
    observations.see(**trl_facts(trainer))
    optimizer = optimizer_named(str(arguments.optim)) if trainer.optimizer is None else None
    loaded = observations.observed.get(Fact.LOADED_PRECISION)
    half = dtype_named(str(getattr(trainer.accelerator, "mixed_precision", "")))
    observations.see(
        # Without autocast, the weights' dtype decides unless an engine casts them.
        precision=half or (None if arguments.deepspeed else loaded),
        optimizer=optimizer,
        loss=loss_of(
            trainer, trainer.model, arguments, getattr(trainer, "compute_loss_func", None)
        ),
    )
    if not any(getattr(arguments, name, False) for name in NAMES):
        see_no_checkpointing(trainer.model)


def trl_facts(trainer: Any) -> dict[str, Value | None]:
    """The trainer and its settings; empty if trl doesn't define it."""
    kind = type(trainer)
    name = next((base.__name__ for base in kind.__mro__ if _package(base) == "trl"), None)
    if name is None or _package(kind) not in SUPPORTED:
        return {}
    arguments = trainer.args
    masked = getattr(arguments, "mask_truncated_completions", False)
    return {
        Fact.TRAINER: name,
        Fact.LIGER: bool(getattr(arguments, "use_liger_kernel", False)),
        Fact.PAD_IS_END: _leaves_end_out(trainer, name),
        Fact.TRUNCATED_MASKED: masked and getattr(arguments, "loss_type", None) in GLOBAL,
        Fact.ENTROPY_SELECTED: (getattr(arguments, "top_entropy_quantile", None) or 1.0) < 1.0,
    }


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _leaves_end_out(trainer: Any, name: str) -> bool:
    """Whether the loss ignores the end token because it is also the padding token."""
    collator = trainer.data_collator
    masks = type(collator).__name__ == "DataCollatorForLanguageModeling"
    masks = masks and _package(type(collator)) == "transformers" and not collator.mlm
    tokenizer = getattr(trainer, "processing_class", None)
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    end = getattr(tokenizer, "eos_token_id", None)
    is_same = end is not None and end == getattr(tokenizer, "pad_token_id", None)
    return is_same and (masks or name in ON_POLICY)
