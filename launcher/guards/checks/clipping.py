"""Notices gradients that are clipped where there are none, or while they are still scaled."""

from __future__ import annotations

import functools
import weakref
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ...checks.finding import Check, Finding
from ...core.count_of import count_of
from ...evidence.observations import Observations
from ...workload.contradictions import EXPLAINED
from .. import data_parallel
from ..callers import user_place
from .told import looking, makes, tell

CLIPS = "torch.nn.utils.clip_grad"
SCALES = "torch.amp.grad_scaler"
HOOKED = (CLIPS, SCALES)
LOOKED = 4
"""Calls that are looked at."""

scalers: weakref.WeakSet[Any] = weakref.WeakSet()
"""The scalers that have scaled a loss."""
_scaled: weakref.WeakSet[Any] = weakref.WeakSet()
"""Those that haven't unscaled its gradients yet."""


def install(module: ModuleType, observations: Observations) -> None:
    """Wraps the function that clips, or what a scaler does."""
    if module.__name__ == CLIPS:
        module.clip_grad_norm_ = _looking(  # type: ignore[attr-defined]
            module.clip_grad_norm_, observations
        )
        return
    wrap = partial(wrapt.wrap_function_wrapper, module)
    wrap("GradScaler.scale", _scaling)
    for name in ("unscale_", "step", "update"):
        wrap(f"GradScaler.{name}", _unscaling)


def is_scaled() -> bool:
    """Whether a scaler has scaled a loss, and hasn't unscaled its gradients yet."""
    return bool(_scaled)


def _scaling(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    if instance.is_enabled():
        _scaled.add(instance)
        scalers.add(instance)
    return wrapped(*args, **kwargs)


def _unscaling(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    _scaled.discard(instance)
    return wrapped(*args, **kwargs)


def _looking(function: Any, observations: Observations) -> Any:
    """The function, which looks at its first calls; a plain one, which can be compiled."""
    looked = 0

    @functools.wraps(function)
    def clip_grad_norm_(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal looked
        if looked < LOOKED and makes(Check.TRAINED):
            looked += 1
            if not hasattr(parameters, "grad"):  # a tensor
                parameters = list(parameters)  # it may be a generator
                looking(observations, Check.TRAINED, _look, observations, parameters)
        return function(parameters, *args, **kwargs)

    return clip_grad_norm_


def _look(observations: Observations, parameters: list[Any]) -> None:
    to_train = [each for each in parameters if each.requires_grad]
    if not to_train:
        return
    if all(each.grad is None for each in to_train):
        engine = any(hasattr(each, "gradient_clipping") for each in data_parallel.others)
        tell(observations, _nothing(len(to_train), is_engine=engine))
    elif _scaled:
        tell(observations, _still_scaled())


def _nothing(parameters: int, *, is_engine: bool) -> Finding:
    return Finding(
        Check.TRAINED,
        certain=is_engine,
        sentence="clip_grad_norm_ clips nothing: none of "
        f"{count_of(parameters, 'parameter')} has a gradient there"
        + (", as DeepSpeed holds them" if is_engine else ""),
        advice="Write gradient_clipping into DeepSpeed's configuration"
        if is_engine
        else "Call it between backward() and step(), with the parameters that are trained",
        where=user_place(),
    )


def _still_scaled() -> Finding:
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence="clip_grad_norm_ clips gradients that are still multiplied by the loss scale, so "
        "that almost nothing of them is left",
        advice=f"Call scaler.unscale_(optimizer) before it ({EXPLAINED})",
        where=user_place(),
    )
