"""Counts backward passes, and hands them to the checks that look at them."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from ...checks.finding import Check
from .accumulation import Clearing
from .first_steps import first_steps
from .gathers import gathers
from .graphs import Passes, StaleCasts
from .losses import first_losses
from .reporting import is_on, safely
from .samplers import unshuffled
from .schedules import schedules

HOOKED = ("torch.autograd",)


def install(module: ModuleType) -> None:
    """Replaces `backward` by a plain function, the cheapest way."""
    module.backward = _counted(module.backward)  # type: ignore[attr-defined]


def _counted(function: Any) -> Any:
    import torch

    first = Passes()
    clearing = Clearing(lambda: list(schedules.optimizers.items()))
    casts = StaleCasts()
    is_passing = False

    @functools.wraps(function)
    def backward(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_passing
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        schedules.passes += 1
        if first.is_open and args and is_on(Check.DIVIDED):
            safely(Check.DIVIDED, first.look, *args[:2])
        if casts.is_open and args and not is_passing and is_on(Check.PRECISION):
            safely(Check.PRECISION, casts.look, args[0])
        if first_losses.is_open and args and not is_passing and is_on(Check.TRAINED):
            safely(Check.TRAINED, first_losses.look, args[0])
        if unshuffled.rows and args and is_on(Check.DATA):
            safely(Check.DATA, unshuffled.look, args[0])
        if gathers.noted and args and not is_passing:
            safely(Check.GRADIENTS, gathers.look, args[0])
        if first_steps.is_open and not is_passing:
            safely(Check.OURS, first_steps.look, args[0] if args else kwargs.get("tensors"))
        is_clipped = schedules.clipped.is_waiting
        is_clearing = clearing.is_open and is_on(Check.GRADIENTS)
        accumulated, kept = schedules.accumulated, schedules.kept
        # One within another is a checkpointed block's.
        is_watched = is_clearing or first_steps.is_open or is_clipped
        is_watched = is_watched or accumulated.is_open or kept.is_open
        if is_passing or not is_watched:
            return function(*args, **kwargs)
        if accumulated.is_open:
            safely(Check.GRADIENTS, accumulated.passing)
        if kept.is_open:
            safely(Check.GRADIENTS, kept.passing)
        if is_clearing:
            safely(Check.GRADIENTS, clearing.look)
        if is_clipped:
            safely(Check.TRAINED, schedules.clipped.before)
        is_passing = True
        try:
            result = function(*args, **kwargs)
        finally:
            is_passing = False
        if is_clipped:
            safely(Check.TRAINED, schedules.clipped.after)
        if kept.is_open:
            safely(Check.GRADIENTS, kept.passed)
        if is_clearing:
            safely(Check.GRADIENTS, clearing.after)
        return result

    return backward
