"""Observes what a loop around accelerate accumulates, and the type that it computes in."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ..core.choices import Engine
from ..core.settings import Fact
from ..evidence.observations import Observations
from ..workload.config_files.vocabulary import dtype_named
from .model_facts import see_no_checkpointing

HOOKED = ("accelerate.accelerator",)


def install(module: ModuleType, observations: Observations) -> None:
    """Wraps `Accelerator.accumulate`, which loops of the user's own call; the Trainer doesn't."""
    accumulates = partial(_accumulate, observations)
    wrapt.wrap_function_wrapper(module, "Accelerator.accumulate", accumulates)


def _accumulate(
    observations: Observations, wrapped: Any, instance: Any, args: Any, kwargs: Any
) -> Any:
    seen = observations.observed
    if seen.get(Fact.ENGINE) != Engine.DEEPSPEED:  # whose guard has seen more
        precision = dtype_named(str(instance.mixed_precision))  # None for `no`
        observations.see(
            accumulation=int(instance.gradient_accumulation_steps),
            precision=precision or seen.get(Fact.LOADED_PRECISION),
        )
        for model in args:
            see_no_checkpointing(getattr(model, "module", model), observations)
    return wrapped(*args, **kwargs)
