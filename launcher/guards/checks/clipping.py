"""Detects clipping of missing, scaled or sharded gradients, too early, or too late."""

from __future__ import annotations

import functools
import math
from types import ModuleType
from typing import Any

from ...checks.finding import Check, Finding
from ...core.count_of import count_of
from ...core.errors import EXPLAINED
from .. import data_parallel, fsdp
from ..callers import user_place
from . import scalers
from .reporting import is_on, report, safely
from .schedules import schedules

HOOKED = ("torch.nn.utils.clip_grad",)
LOOKED = 4
"""Calls to inspect."""


def install(module: ModuleType) -> None:
    """Wraps the clipping function."""
    module.clip_grad_norm_ = _looking(module.clip_grad_norm_)  # type: ignore[attr-defined]


def _looking(function: Any) -> Any:
    """Wraps a function in a plain one, which can be compiled, to inspect its first calls."""
    looked = 0

    @functools.wraps(function)
    def clip_grad_norm_(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal looked
        most: Any = args[0] if args else kwargs.get("max_norm")
        if looked >= LOOKED or not is_on(Check.TRAINED) or hasattr(parameters, "grad"):  # a tensor
            return function(parameters, *args, **kwargs)
        looked += 1
        parameters = list(parameters)  # it may be a generator
        safely(Check.TRAINED, _look, parameters, most)
        norm = function(parameters, *args, **kwargs)
        if not math.isinf(most):
            safely(Check.TRAINED, schedules.clipped.note, parameters)
        return norm

    return clip_grad_norm_


def _look(parameters: list[Any], most: float) -> None:
    to_train = [each for each in parameters if each.requires_grad]
    if not parameters:
        report(_without_any())
    if not to_train:
        return
    if not math.isinf(most) and not _sharded().isdisjoint(map(id, to_train)):
        report(_by_shard())
    elif all(each.grad is None for each in to_train):
        engine = any(hasattr(each, "gradient_clipping") for each in data_parallel.others)
        report(_nothing(len(to_train), is_engine=engine))
    elif scalers.scaling:
        report(_still_scaled())
    elif not math.isinf(most) and schedules.has_used(to_train):
        report(_used_before())


def _sharded() -> set[int]:
    """Ids of the parameters that FSDP 1 divides among ranks."""
    modules = [each for each in fsdp.flat if each.sharding_strategy.name != "NO_SHARD"]
    return {id(parameter) for each in modules for parameter in each.parameters()}


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


def _without_any() -> Finding:
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence="clip_grad_norm_ clips nothing: it is given no parameters, as by a generator that "
        "something else has used up",
        advice="Give it model.parameters(), or a list",
        where=user_place(),
    )


def _used_before() -> Finding:
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence="clip_grad_norm_ clips gradients that the optimizer has used already: no backward "
        "pass has added to them since its step",
        advice="Call it between backward() and step()",
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


def _by_shard() -> Finding:
    return Finding(
        Check.TRAINED,
        certain=True,
        sentence="clip_grad_norm_ clips each rank's shards by their own norm: FSDP 1 divides the "
        "gradients among the ranks, and each scales its part differently",
        advice="Call clip_grad_norm_ of the FSDP model (with accelerate: give "
        "accelerator.clip_grad_norm_ exactly model.parameters())",
        where=user_place(),
    )
