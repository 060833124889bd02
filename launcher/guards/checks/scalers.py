"""Tracks scalers: whether gradients still are scaled, and whether all steps are skipped."""

from __future__ import annotations

import weakref
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ...checks import sampled
from ...checks.finding import Check
from ...core.private_names import SCALE
from ...evidence.observations import observations
from .copies import Copy, copied
from .reporting import is_on, report_here, safely

HOOKED = ("torch.amp.grad_scaler",)

used: weakref.WeakSet[Any] = weakref.WeakSet()
"""Scalers that have scaled a loss."""
scaling: weakref.WeakSet[Any] = weakref.WeakSet()
"""Scalers that haven't unscaled the gradients yet."""
_scales: weakref.WeakKeyDictionary[Any, tuple[int, tuple[Copy, ...]]] = weakref.WeakKeyDictionary()
"""By scaler: its updates, and its scale at the last of them that were looked at."""


def install(module: ModuleType) -> None:
    """Wraps the methods of scalers."""
    wrap = partial(wrapt.wrap_function_wrapper, module)
    wrap("GradScaler.scale", _scaling)
    for name in ("unscale_", "step"):
        wrap(f"GradScaler.{name}", _unscaling)
    wrap("GradScaler.update", _updating)


def _scaling(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    if instance.is_enabled():
        scaling.add(instance)
        used.add(instance)
    return wrapped(*args, **kwargs)


def _unscaling(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    scaling.discard(instance)
    return wrapped(*args, **kwargs)


def _updating(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    result = _unscaling(wrapped, instance, args, kwargs)
    if instance.is_enabled() and is_on(Check.TRAINED):
        safely(Check.TRAINED, _look, instance)
    return result


def _look(scaler: Any) -> None:
    """Compares the scale with an earlier one: each skipped step lowers it by a factor."""
    updates, scales = _scales.get(scaler, (0, ()))
    if updates % sampled.MOST_SKIPPED == 0:
        now = None
        with observations.going_on():
            now = copied([SCALE.of(scaler).detach().reshape(-1)])
        scales = (*scales, *filter(None, [now]))[-3:]
        seen = [scale.parts()[0][0] for scale in scales if scale.is_there]
        report_here(sampled.skipped(seen, scaler.get_backoff_factor()))
    _scales[scaler] = updates + 1, scales
