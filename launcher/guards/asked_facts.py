"""What the user's arguments and configuration ask for, in the words of the plan's facts."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

from ..core.certainty import Origin
from ..core.choices import Checkpointing, Engine, Precision
from ..core.settings import Fact, Setting, Value
from ..workload.config_files.deepspeed import Config, load
from ..workload.config_files.deepspeed_statements import of_config
from ..workload.config_files.vocabulary import optimizer_named
from .model_facts import NAMES

OTHER_ENGINES = ("ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP", "ACCELERATE_USE_MEGATRON_LM")
"""Variables that have accelerate take another engine than DDP."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """A worker reads; what is odd in a configuration is DeepSpeed's to say."""

    world: int = field(default_factory=lambda: int(os.environ.get("WORLD_SIZE", "1")))
    notes: list[str] = field(default_factory=list)
    unmodelled: list[str] = field(default_factory=list)


def deepspeed_facts(config: Config) -> dict[str, Value | None]:
    """What a configuration of DeepSpeed asks for; "auto" says nothing."""
    stated = of_config(config, "", _Reader(), Origin.CONFIG)
    return {str(name): known.value for name, known in stated}


def trainer_facts(arguments: Any) -> dict[str, Value | None]:
    """What TrainingArguments ask for, before they are validated.

    Without autocast the weights' own type decides the precision, and a model may checkpoint without
    the Trainer's switch: neither is said here.
    """
    facts: dict[str, Value | None] = {}
    if arguments.deepspeed:
        facts |= deepspeed_facts(load(arguments.deepspeed))
    elif not arguments.fsdp and not any(
        os.environ.get(name, "").lower() in ("true", "1") for name in OTHER_ENGINES
    ):
        facts[Fact.ENGINE] = Engine.DDP.value
        facts[Fact.UNSYNCED_PASSES] = True
        facts[Setting.STATIC_GRAPH] = bool(getattr(arguments, "ddp_static_graph", False))
        facts[Setting.FIND_UNUSED_PARAMETERS] = arguments.ddp_find_unused_parameters
    precisions = [each for each in (Precision.BF16, Precision.FP16) if getattr(arguments, each)]
    return {
        **facts,
        Setting.MICRO_BATCH: arguments.per_device_train_batch_size,
        Setting.ACCUMULATION: arguments.gradient_accumulation_steps,
        Setting.PRECISION: next(iter(precisions), facts.get(Setting.PRECISION)),
        Setting.GRADIENT_CHECKPOINTING: _checkpointing(arguments),
        Fact.OPTIMIZER: facts.get(Fact.OPTIMIZER) or _optimizer(arguments),
    }


def _optimizer(arguments: Any) -> Value | None:
    return optimizer_named(str(getattr(arguments.optim, "value", arguments.optim)))


def _checkpointing(arguments: Any) -> Value | None:
    """The implementation that the switch's kwargs name; None where they don't, or it is off."""
    names = [name for name in NAMES if getattr(arguments, name, False)]
    for name in names:
        kwargs = getattr(arguments, f"{name}_kwargs", None) or {}
        kwargs = json.loads(kwargs) if isinstance(kwargs, str) else kwargs
        asked = kwargs.get("use_reentrant")
        if asked is not None:
            return (Checkpointing.REENTRANT if asked else Checkpointing.NON_REENTRANT).value
    return None
