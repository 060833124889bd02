"""Reads TrainingArguments, and changes them before their validation or a Trainer's creation."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

from ..core.choices import Checkpointing, Engine, Precision
from ..core.settings import BATCH, OF_DEEPSPEED, Fact, Setting, Value
from ..frameworks.config_files import deepspeed
from ..frameworks.config_files.deepspeed import load
from ..frameworks.config_files.vocabulary import STEPS, dtype_named, optimizer_named
from . import deepspeed_plugin, fsdp
from .model_facts import NAMES
from .settling import overrides, replaced

OTHER_ENGINES = ("ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP", "ACCELERATE_USE_MEGATRON_LM")
"""Variables that make accelerate use another engine than DDP."""
SETTABLE = tuple(setting for setting in Setting if setting.row.before_validation)
"""Settings that can still change before validation."""


def trainer_facts(arguments: Any, *, validated: bool = False) -> dict[str, Value | None]:
    """Settings of TrainingArguments.

    Leaves out the precision without autocast, which the weights' dtype decides, and checkpointing
    without the Trainer's switch, which a model may do itself.

    Args:
        arguments: a Trainer's.
        validated: whether they are validated; then only the newer of two aliases is valid.
    """
    facts: dict[str, Value | None] = {}
    in_force = deepspeed_plugin.config_of(getattr(arguments, "deepspeed_plugin", None))
    if in_force is not None or arguments.deepspeed:
        facts |= deepspeed_plugin.deepspeed_facts(load(in_force or arguments.deepspeed))
    elif not arguments.fsdp and not any(
        os.environ.get(name, "").lower() in ("true", "1") for name in OTHER_ENGINES
    ):
        facts[Fact.ENGINE] = Engine.DDP.value
        facts[Fact.UNSYNCED_PASSES] = True
        facts[Setting.STATIC_GRAPH] = bool(getattr(arguments, "ddp_static_graph", False))
        facts[Setting.FIND_UNUSED_PARAMETERS] = arguments.ddp_find_unused_parameters
    named = str(getattr(arguments.optim, "value", arguments.optim))
    precisions = [half for half in (Precision.BF16, Precision.FP16) if getattr(arguments, half)]
    around = dtype_named(os.environ.get("ACCELERATE_MIXED_PRECISION", ""))
    return {
        **facts,
        **{setting: getattr(arguments, setting.row.argument) for setting in BATCH},
        Setting.PRECISION: next(iter(precisions), facts.get(Setting.PRECISION) or around),
        Setting.GRADIENT_CHECKPOINTING: _checkpointing(arguments, validated=validated),
        Fact.COMPILED: bool(getattr(arguments, "torch_compile", False)) or None,
        Fact.OPTIMIZER: facts.get(Fact.OPTIMIZER) or optimizer_named(named),
        Fact.FUSED_STEP: facts.get(Fact.FUSED_STEP, STEPS.get(named)),
    }


def _checkpointing(arguments: Any, *, validated: bool) -> Value | None:
    """The checkpointing implementation that the kwargs name; None if unnamed or off."""
    names = [name for name in NAMES if hasattr(arguments, name)]
    for name in names[:1] if validated else names:
        if not getattr(arguments, name):
            continue
        if (mode := mode_of(getattr(arguments, f"{name}_kwargs", None))) is not None:
            return mode
    return None


def mode_of(kwargs: Any) -> str | None:
    """The checkpointing implementation that the kwargs name, if any."""
    is_reentrant = _mapping(kwargs).get("use_reentrant")
    if is_reentrant is None:
        return None
    return (Checkpointing.REENTRANT if is_reentrant else Checkpointing.NON_REENTRANT).value


def settable_late(arguments: Any, model: Any = None) -> list[Setting]:
    """Settings that can still change between validation and the Trainer's constructor.

    Partitioned weights fix the stage and the offload. Subclasses with sizes derived from the batch,
    such as GRPOConfig, fix the batch.

    Args:
        arguments: the validated arguments.
        model: the Trainer's model, if it exists.
    """
    fixed: set[Setting] = set()
    config = deepspeed_plugin.config_of(getattr(arguments, "deepspeed_plugin", None))
    if config is None or (model is not None and deepspeed_plugin.is_partitioned(model)):
        fixed |= {*OF_DEEPSPEED}
    if _adds_batch_fields(type(arguments)):
        fixed |= {*BATCH}
    return [setting for setting in SETTABLE if setting not in fixed]


def give(arguments: Any, settings: Mapping[Setting, Value]) -> None:
    """Applies settings before the arguments are validated and passed to DeepSpeed."""
    _give(arguments, settings)
    if arguments.deepspeed:
        arguments.deepspeed = deepspeed.edited(arguments.deepspeed, settings)
    elif Setting.ZERO_STAGE in settings:
        arguments.deepspeed = deepspeed.new(settings)
    elif Setting.RESHARD_AFTER_FORWARD in settings and not arguments.fsdp:
        os.environ.update(fsdp.VARIABLES)


def give_late(arguments: Any, settings: Mapping[Setting, Value]) -> None:
    """Applies settings to validated arguments, whose DeepSpeed configuration is in force."""
    _give(arguments, settings)
    plugin = getattr(arguments, "deepspeed_plugin", None)
    if deepspeed_plugin.config_of(plugin) is not None:
        deepspeed_plugin.change(plugin, settings)


def is_turned_on() -> bool:
    """Whether the plan turns on checkpointing in a script not known to use it."""
    name = Setting.GRADIENT_CHECKPOINTING
    mode = overrides().get(name, Checkpointing.OFF)
    return mode != Checkpointing.OFF == replaced().get(name, Checkpointing.OFF)


def _give(arguments: Any, settings: Mapping[Setting, Value]) -> None:
    if Setting.GRADIENT_CHECKPOINTING in settings:
        _set_checkpointing(arguments, Checkpointing(str(settings[Setting.GRADIENT_CHECKPOINTING])))
    for setting in settings.keys() & {*BATCH}:
        setattr(arguments, setting.row.argument, settings[setting])


def _set_checkpointing(arguments: Any, mode: Checkpointing) -> None:
    """Sets the switch and its kwargs under all names of this version.

    If the plan changes only the implementation, a switch that is off stays off: the model calls
    `checkpoint` itself, where the preset applies, and may lack the Trainer's switch.
    """
    names = [name for name in NAMES if hasattr(arguments, name)]
    was_on = any(getattr(arguments, name) for name in names)
    is_on = mode is not Checkpointing.OFF and (was_on or is_turned_on())
    for name in names:
        setattr(arguments, name, is_on)
        kwargs = _mapping(getattr(arguments, f"{name}_kwargs"))
        kwargs["use_reentrant"] = mode is Checkpointing.REENTRANT
        if is_on:
            setattr(arguments, f"{name}_kwargs", kwargs)


def _mapping(value: Any) -> dict[str, Any]:
    """The kwargs, from a script's dict or a command line's JSON."""
    return dict(json.loads(value) if isinstance(value, str) else value or {})


def _adds_batch_fields(kind: type) -> bool:
    """Whether a subclass of TrainingArguments adds batch fields."""
    names = {field.name for field in dataclasses.fields(kind) if "batch" in field.name}
    bases = (base for base in kind.__mro__ if base.__name__ == "TrainingArguments")
    return any(not names <= {field.name for field in dataclasses.fields(base)} for base in bases)
