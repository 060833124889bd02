"""Detects clipping of missing, scaled or sharded gradients, too early, or too late."""

from __future__ import annotations

import functools
import math
from types import ModuleType
from typing import Any

from ...checks.finding import Check, Finding
from ...core.errors import EXPLAINED
from ...core.quantities import count_of
from .. import data_parallel, fsdp
from . import dtypes
from .reporting import is_on, report_here, safely
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
    to_train = [param for param in parameters if param.requires_grad]
    is_limit = not math.isinf(most)
    if not parameters:
        _report(
            "nothing: it is given no parameters, as by a generator that something else has used up",
            "Give it model.parameters(), or a list",
        )
    if not to_train:
        return
    if is_limit and not _sharded().isdisjoint(map(id, to_train)):
        _report(
            "each rank's shards by their own norm: FSDP 1 divides the gradients among the ranks, "
            "and each scales its part differently",
            "Call clip_grad_norm_ of the FSDP model (with accelerate: give "
            "accelerator.clip_grad_norm_ exactly model.parameters())",
            is_certain=True,
        )
    elif all(param.grad is None for param in to_train):
        is_engine = any(hasattr(model, "gradient_clipping") for model in data_parallel.others)
        _report(
            f"nothing: none of {count_of(len(to_train), 'parameter')} has a gradient there"
            + (", as DeepSpeed holds them" if is_engine else ""),
            "Write gradient_clipping into DeepSpeed's configuration"
            if is_engine
            else "Call it between backward() and step(), with the parameters that are trained",
            is_certain=is_engine,
        )
    elif dtypes.scaling:
        _report(
            "gradients that are still multiplied by the loss scale, so that almost nothing of them "
            "is left",
            f"Call scaler.unscale_(optimizer) before it ({EXPLAINED})",
        )
    elif is_limit and schedules.has_used(to_train):
        _report(
            "gradients that the optimizer has used already: no backward pass has added to them "
            "since its step",
            "Call it between backward() and step()",
        )


def _report(clipped: str, advice: str, *, is_certain: bool = False) -> None:
    sentence = f"clip_grad_norm_ clips {clipped}"
    report_here(Finding(Check.TRAINED, sentence, advice, certain=is_certain))


def _sharded() -> set[int]:
    """Ids of the parameters that FSDP 1 divides among ranks."""
    modules = [module for module in fsdp.flat if module.sharding_strategy.name != "NO_SHARD"]
    return {id(parameter) for module in modules for parameter in module.parameters()}
