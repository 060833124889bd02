"""Changes TrainingArguments before their validation, or before a Trainer is created.

`argument_facts` reads them.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from ..core.choices import Checkpointing
from ..core.settings import BATCH, OF_DEEPSPEED, Setting, Value
from ..frameworks.config_files import deepspeed
from . import deepspeed_plugin, fsdp
from .enforced import overrides, replaced
from .model_facts import NAMES

SETTABLE = tuple(setting for setting in Setting if setting.row.before_validation)
"""Settings that can still change before validation."""


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
    import json

    return dict(json.loads(value) if isinstance(value, str) else value or {})


def _adds_batch_fields(kind: type) -> bool:
    """Whether a subclass of TrainingArguments adds batch fields."""
    names = {field.name for field in dataclasses.fields(kind) if "batch" in field.name}
    bases = (base for base in kind.__mro__ if base.__name__ == "TrainingArguments")
    return any(not names <= {field.name for field in dataclasses.fields(base)} for base in bases)
