"""Notes which scalers have scaled a loss, and whether the gradients still are."""

from __future__ import annotations

import weakref
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ...evidence.observations import Observations

HOOKED = ("torch.amp.grad_scaler",)

used: weakref.WeakSet[Any] = weakref.WeakSet()
"""The scalers that have scaled a loss."""
scaling: weakref.WeakSet[Any] = weakref.WeakSet()
"""Those that haven't unscaled its gradients yet."""


def install(module: ModuleType, _observations: Observations) -> None:
    """Wraps what a scaler does."""
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
