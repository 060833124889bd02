"""Reports contradictory settings before the first step.

Changes nothing. Each check is a function on a framework call, and skips calls it can't read.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
import sys
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ..checks import data, resumed
from ..checks.finding import Finding
from ..checks.saved import worst_kept
from ..frameworks.config_files.deepspeed import Config, section
from ..workload.contradictions import (
    Stated,
    differing,
    line,
    of_optimizer,
    of_precision,
    of_trainer,
)
from . import looks
from .callers import MAKERS, is_called_by, place_of, user_place
from .deepspeed_plugin import config_of
from .looks import Call, Looks, Watched
from .model_facts import base_of

ARGUMENTS = (
    *("learning_rate", "weight_decay", "optim", "lr_scheduler_type", "max_grad_norm"),
    *("bf16", "fp16", "label_smoothing_factor"),
)
"""TrainingArguments that another setting may silently override."""

_accumulations: weakref.WeakKeyDictionary[Any, Stated] = weakref.WeakKeyDictionary()
"""The accumulation each Accelerator was created with, and its source."""
_used: weakref.WeakSet[Any] = weakref.WeakSet()
"""Accelerators that something was prepared with."""


def _trainer(call: Call) -> Iterator[str]:
    """Compares a Trainer's arguments with its other objects and its class."""
    stated, passed = _stated(call.owner.args), _passed(call)
    config = config_of(call.owner.accelerator.state.deepspeed_plugin)
    if config is None:
        if passed is not None:
            yield from of_optimizer(stated, *passed)
    else:
        yield from _overruled_by_file(call, config, stated, passed)
    yield from _ignored_by_loss(call, stated)
    variable, steps = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "gradient_accumulation_steps"
    around, stated_steps = os.environ.get(variable, "1"), getattr(call.owner.args, steps)
    if config is None and around != "1":  # accelerate's default
        argument = Stated(stated_steps, f"TrainingArguments' {steps}")
        yield from differing(Stated(int(around), f"${variable}"), argument)


def _worst_kept(call: Call) -> Iterator[Finding]:
    """Reports a Trainer that keeps the worst checkpoint as the best."""
    arguments = call.owner.args
    metric, is_greater = arguments.metric_for_best_model, arguments.greater_is_better
    is_used = arguments.load_best_model_at_end or arguments.save_total_limit
    evaluates = _plain(getattr(arguments, "eval_strategy", "no")) != "no"
    if metric and is_used and evaluates and isinstance(is_greater, bool):
        finding = worst_kept(metric, is_greater_better=is_greater)
        yield from () if finding is None else (finding,)


def _unused_checkpoint(call: Call) -> Iterator[Finding]:
    """Reports a checkpoint that only TrainingArguments name, which `train` doesn't read."""
    wanted = call.owner.args.resume_from_checkpoint
    if wanted and call.arguments.get("resume_from_checkpoint") is None:
        yield resumed.named_in_vain(str(wanted))


def _unshifted(call: Call) -> Iterator[Finding]:
    """Reports a decoder whose labels the Trainer's label smoothing doesn't shift.

    It shifts them for transformers' decoders, which it recognizes by their class names
    (transformers/trainer.py, `compute_loss`).
    """
    trainer, auto = call.owner, sys.modules["transformers.models.auto.modeling_auto"]
    known = {*auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()}
    kind = type(base_of(trainer.accelerator.unwrap_model(trainer.model)))
    base = next((base.__name__ for base in kind.__mro__ if base.__name__ in known), None)
    is_own = type(trainer).compute_loss.__module__ != "transformers.trainer"
    is_smoothed = trainer.args.label_smoothing_factor and trainer.compute_loss_func is None
    if is_smoothed and base and kind.__name__ not in known and not is_own:
        yield data.SMOOTHED_UNSHIFTED.found(kind=kind.__name__, base=base)


def _passed(call: Call) -> tuple[Stated, list[Mapping[str, Any]]] | None:
    """The optimizer passed to a Trainer, and its groups; None if the Trainer creates one."""
    optimizer = (call.arguments.get("optimizers") or (None, None))[0]
    if optimizer is None:
        return None
    kind = Stated(type(optimizer).__name__, "the passed optimizer", user_place())
    return kind, list(optimizer.param_groups)


def _ignored_by_loss(call: Call, stated: Mapping[str, Stated]) -> Iterator[str]:
    """Arguments that a custom loss ignores."""
    compute_loss, function = type(call.owner).compute_loss, call.arguments.get("compute_loss_func")
    smoothing = stated.get("label_smoothing_factor")
    if "super()" in (text := inspect.getsource(compute_loss)):
        compute_loss = sys.modules["transformers.trainer"].Trainer.compute_loss
        text = inspect.getsource(compute_loss)
    for name, ignored in (
        ("compute_loss_func", function and Stated(function.__name__, "compute_loss_func")),
        ("label_smoother", smoothing),
    ):
        if ignored is not None and name not in text:
            yield line(
                ignored, Stated(compute_loss.__qualname__, "the loss of", place_of(compute_loss))
            )
        elif name == "label_smoother" and ignored is not None and function is not None:
            custom = Stated(function.__name__, "compute_loss_func", place_of(function))
            yield line(ignored, custom)


def _overruled_by_file(
    call: Call,
    config: Config,
    stated: Mapping[str, Stated],
    passed: tuple[Stated, list[Mapping[str, Any]]] | None,
) -> Iterator[str]:
    """Compares a Trainer's arguments with DeepSpeed's configuration in force."""
    arguments = call.owner.args
    named = arguments.deepspeed or os.environ.get("ACCELERATE_DEEPSPEED_CONFIG_FILE")
    is_file = str(named).endswith(".json")
    label = Path(str(named)).name if is_file else "DeepSpeed's configuration"
    constants = sys.modules["deepspeed.runtime.constants"]
    yield from of_trainer(stated, config, label, constants.GRADIENT_CLIPPING_DEFAULT)
    if passed is not None and "optimizer" in config:
        kind = section(config, "optimizer").get("type")
        yield line(passed[0], Stated(kind, f"{label}: optimizer.type"))
    elif passed is not None:
        yield from of_optimizer(stated, *passed)


def _stated(arguments: Any) -> dict[str, Stated]:
    """Training arguments that differ from the defaults of their class."""
    defaults = {field.name: field.default for field in dataclasses.fields(arguments)}
    stated: dict[str, Stated] = {}
    for name in ARGUMENTS:
        value, default = _plain(getattr(arguments, name)), _plain(defaults[name])
        if default is not dataclasses.MISSING and value != default:
            is_flag = any(word.partition("=")[0] == f"--{name}" for word in sys.argv)
            stated[name] = Stated(value, f"--{name}" if is_flag else f"TrainingArguments' {name}")
    return stated


def _plain(value: Any) -> Any:
    return getattr(value, "value", value)


def _engine(call: Call) -> Iterator[str]:
    """Compares DeepSpeed's configuration with the script's optimizer and schedule."""
    config, where = call.owner.config, "DeepSpeed's configuration"
    passed_objects = {
        "optimizer": call.owner.client_optimizer,
        "scheduler": call.owner.client_lr_scheduler,
    }
    for name, passed in passed_objects.items():
        configured = section(config, name)
        if configured.get("type") and passed is not None and not is_called_by(*MAKERS):
            kind = Stated(configured["type"], f"{where}: {name}.type")
            factory = getattr(passed, "__name__", type(passed).__name__)
            yield line(kind, Stated(str(factory), f"the passed {name}"))


def _accelerator(call: Call) -> Iterator[str]:
    """Compares an Accelerator's arguments with the environment and DeepSpeed's configuration."""
    if is_called_by("transformers"):
        return
    at, config = user_place(), config_of(getattr(call.owner.state, "deepspeed_plugin", None)) or {}
    name, variable = "gradient_accumulation_steps", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"
    argument = Stated(call.arguments.get(name, 1), f"Accelerator's {name}", at)
    in_force = Stated(call.owner.gradient_accumulation_steps, f"${variable}")
    if argument.value != 1 and variable in os.environ:
        yield from differing(argument, in_force)
    _accumulations[call.owner] = in_force if variable in os.environ else argument
    precision, variable = call.arguments.get("mixed_precision"), "ACCELERATE_MIXED_PRECISION"
    stated = (
        Stated(str(precision).lower(), "Accelerator's mixed_precision", at) if precision else None
    )
    around = os.environ.get(variable, "").lower()
    yield from of_precision(stated, Stated(around, f"${variable}") if around else None, config)


def _unprepared_load(call: Call) -> Iterator[Finding]:
    """Reports states that are loaded before anything was prepared to take them."""
    if call.owner not in _used:
        yield resumed.loaded_in_vain()


def _remember(call: Call) -> Iterator[str]:
    """Notes Accelerators that something is prepared with."""
    _used.add(call.owner)
    yield from ()


def _forget(call: Call) -> Iterator[str]:
    """Notes Accelerators that release prepared objects."""
    _used.discard(call.owner)
    yield from ()


def _prepared(call: Call) -> Iterator[str]:
    """Reports the accumulation that an Accelerator takes from DeepSpeed's configuration."""
    stated, in_force = _accumulations.get(call.owner), call.owner.gradient_accumulation_steps
    config = config_of(call.owner.state.deepspeed_plugin) or {}
    configured = config.get("gradient_accumulation_steps")
    if stated is not None and stated.value == in_force != 1 and isinstance(configured, int):
        where = "gradient_accumulation_steps in DeepSpeed's configuration (1 if it has none)"
        yield from differing(stated, Stated(configured, where))


def _overruled_norm(call: Call) -> Iterator[str]:
    """Reports a passed norm that DeepSpeed replaces by its configured norm."""
    wrapper = getattr(call.owner, "deepspeed_engine_wrapped", None)
    if wrapper is None or is_called_by("transformers"):
        return
    passed = Stated(float(call.arguments["max_norm"]), "clip_grad_norm_'s max_norm", user_place())
    configured = float(wrapper.engine.gradient_clipping())
    if not math.isinf(float(call.arguments["max_norm"])):  # which only asks for the norm
        yield from differing(passed, Stated(configured, "DeepSpeed's gradient_clipping"))


LOOKS: Looks = {
    "accelerate.accelerator": {
        "Accelerator.__init__": (Watched(_accelerator, is_after=True),),
        "Accelerator.prepare": (Watched(_remember), Watched(_prepared)),
        "Accelerator.prepare_model": (Watched(_remember),),
        "Accelerator.load_state": (Watched(_unprepared_load),),
        "Accelerator.free_memory": (Watched(_forget),),
        "Accelerator.clip_grad_norm_": (Watched(_overruled_norm, first=1),),
    },
    "deepspeed.runtime.engine": {"DeepSpeedEngine.__init__": (Watched(_engine, is_after=True),)},
    "transformers.trainer": {
        "Trainer.__init__": (
            *(Watched(_trainer, is_after=True), Watched(_worst_kept, is_after=True)),
            Watched(_unshifted, is_after=True),
        ),
        "Trainer.train": (Watched(_unused_checkpoint),),
    },
}
HOOKED = tuple(LOOKS)
install = partial(looks.install, LOOKS)
