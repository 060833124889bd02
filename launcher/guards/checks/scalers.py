"""Tracks scalers: whether gradients still are scaled, and the steps that they skip."""

from __future__ import annotations

import weakref
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ...checks import sampled
from ...evidence.observations import Observations
from ..callers import user_place
from .told import tell

HOOKED = ("torch.amp.grad_scaler",)

used: weakref.WeakSet[Any] = weakref.WeakSet()
"""Scalers that have scaled a loss."""
scaling: weakref.WeakSet[Any] = weakref.WeakSet()
"""Scalers that haven't unscaled the gradients yet."""
_skipped: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""By scaler: its latest steps in a row that it has skipped."""


def install(module: ModuleType, observations: Observations) -> None:
    """Wraps the methods of scalers."""
    wrap = partial(wrapt.wrap_function_wrapper, module)
    wrap("GradScaler.scale", _scaling)
    for name in ("unscale_", "update"):
        wrap(f"GradScaler.{name}", _unscaling)
    wrap("GradScaler.step", partial(_stepping, observations))


def _scaling(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    if instance.is_enabled():
        scaling.add(instance)
        used.add(instance)
    return wrapped(*args, **kwargs)


def _unscaling(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    scaling.discard(instance)
    return wrapped(*args, **kwargs)


def _stepping(
    observations: Observations, wrapped: Any, instance: Any, args: Any, kwargs: Any
) -> Any:
    scaling.discard(instance)
    steps = observations.steps_of_all()
    result = wrapped(*args, **kwargs)
    is_skipped = instance.is_enabled() and observations.steps_of_all() == steps
    _skipped[instance] = _skipped.get(instance, 0) + 1 if is_skipped else 0
    if _skipped[instance] == sampled.MOST_SKIPPED:
        tell(observations, sampled.skipped(_skipped[instance], user_place()))
    return result
