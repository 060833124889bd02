"""Counts backward passes, and hands them to the checks that look at them."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from ...checks.finding import Check
from ...evidence.observations import Observations
from .clearing import Clearing
from .gathers import Gathers, gathers_of
from .passes import Passes
from .schedules import Schedules, schedules_of
from .stale_casts import StaleCasts
from .told import looking, makes

HOOKED = ("torch.autograd",)


def install(module: ModuleType, observations: Observations) -> None:
    """Replaces `backward` by a plain function, the cheapest way."""
    module.backward = _counted(module.backward, observations)  # type: ignore[attr-defined]


def _counted(function: Any, observations: Observations) -> Any:
    import torch

    schedules: Schedules = schedules_of(observations)
    first = Passes(observations)
    clearing = Clearing(observations, lambda: list(schedules.optimizers.items()))
    casts = StaleCasts(observations)
    gathers: Gathers = gathers_of(observations)
    is_passing = False

    @functools.wraps(function)
    def backward(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_passing
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        schedules.passes += 1
        if first.is_open and args and makes(Check.DIVIDED):
            looking(observations, Check.DIVIDED, first.look, *args[:2])
        if casts.is_open and args and not is_passing and makes(Check.PRECISION):
            looking(observations, Check.PRECISION, casts.look, args[0])
        if gathers.noted and args and not is_passing:
            looking(observations, Check.GRADIENTS, gathers.look, args[0])
        is_clipped = schedules.clipped.is_waiting
        accumulated = schedules.accumulated
        # One within another is a checkpointed block's.
        if is_passing or not (clearing.is_open or is_clipped or accumulated.is_open):
            return function(*args, **kwargs)
        if accumulated.is_open:
            looking(observations, Check.GRADIENTS, accumulated.passing)
        if clearing.is_open and makes(Check.GRADIENTS):
            looking(observations, Check.GRADIENTS, clearing.look)
        if is_clipped:
            looking(observations, Check.TRAINED, schedules.clipped.before)
        is_passing = True
        try:
            result = function(*args, **kwargs)
        finally:
            is_passing = False
        if is_clipped:
            looking(observations, Check.TRAINED, schedules.clipped.after)
        return result

    return backward
