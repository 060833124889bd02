"""Converts the user's arguments and configuration to facts for the planner."""

from __future__ import annotations

import json
import os
from typing import Any

from ..core.choices import Checkpointing, Engine, Precision
from ..core.settings import BATCH, Fact, Setting, Value
from ..frameworks.config_files.deepspeed import Config, load
from ..frameworks.config_files.vocabulary import STEPS, dtype_named, optimizer_named
from ..frameworks.deepspeed import of_config
from ..frameworks.framework import Script
from .deepspeed_plugin import config_of
from .model_facts import NAMES

OTHER_ENGINES = ("ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP", "ACCELERATE_USE_MEGATRON_LM")
"""Variables that make accelerate use another engine than DDP."""


def deepspeed_facts(config: Config) -> dict[str, Value | None]:
    """Settings of a DeepSpeed configuration, except those that are "auto"."""
    # Its notes are discarded: DeepSpeed itself reports configuration errors.
    stated = of_config(config, "", Script(world=int(os.environ.get("WORLD_SIZE", "1"))))
    return {str(name): known.value for name, known in stated}


def trainer_facts(arguments: Any, *, validated: bool = False) -> dict[str, Value | None]:
    """Settings of TrainingArguments.

    Leaves out the precision without autocast, which the weights' dtype decides, and checkpointing
    without the Trainer's switch, which a model may do itself.

    Args:
        arguments: a Trainer's.
        validated: whether they are validated; then only the newer of two aliases is valid.
    """
    facts: dict[str, Value | None] = {}
    in_force = config_of(getattr(arguments, "deepspeed_plugin", None))
    if in_force is not None or arguments.deepspeed:
        facts |= deepspeed_facts(load(in_force or arguments.deepspeed))
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
    kwargs = json.loads(kwargs) if isinstance(kwargs, str) else kwargs
    is_reentrant = (kwargs or {}).get("use_reentrant")
    if is_reentrant is None:
        return None
    return (Checkpointing.REENTRANT if is_reentrant else Checkpointing.NON_REENTRANT).value
