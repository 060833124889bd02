"""Tracks scalers that have scaled a loss, and whether gradients still are scaled."""

from __future__ import annotations

import weakref
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ...evidence.observations import Observations

HOOKED = ("torch.amp.grad_scaler",)

used: weakref.WeakSet[Any] = weakref.WeakSet()
"""Scalers that have scaled a loss."""
scaling: weakref.WeakSet[Any] = weakref.WeakSet()
"""Scalers that haven't unscaled the gradients yet."""


def install(module: ModuleType, _observations: Observations) -> None:
    """Wraps the methods of scalers."""
    wrap = partial(wrapt.wrap_function_wrapper, module)
    wrap("GradScaler.scale", _scaling)
    for name in ("unscale_", "step", "update"):
        wrap(f"GradScaler.{name}", _unscaling)


def _scaling(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    if instance.is_enabled():
        scaling.add(instance)
        used.add(instance)
    return wrapped(*args, **kwargs)


def _unscaling(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    scaling.discard(instance)
    return wrapped(*args, **kwargs)
