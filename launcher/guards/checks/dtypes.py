"""Compares the dtypes of an optimizer's weights and gradients with those of the passes."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import wrapt

from ...checks import precision
from ...checks.finding import Check
from . import scalers
from .models import known_models, parameters_of
from .reporting import is_on, report, safely

ACCELERATE = "accelerate.accelerator"
HOOKED = ("torch.nn.parallel.distributed", ACCELERATE)

autocasts: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""By unwrapped model: the autocast dtype of its first training pass; no entry without autocast."""
unasked: weakref.WeakSet[Any] = weakref.WeakSet()
"""transformers models with the checkpoint's dtype, by default."""
precisions: set[str] = set()
"""Mixed precisions of the Accelerators, e.g. `bf16`."""


def install(module: ModuleType) -> None:
    """Inspects the first pass of DistributedDataParallel models, and Accelerators."""
    if module.__name__ == ACCELERATE:
        wrapt.wrap_function_wrapper(module, "Accelerator.__init__", _accelerated)
        return
    wrapt.wrap_function_wrapper(module, "DistributedDataParallel.__init__", _made)


def _accelerated(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
    wrapped(*args, **kwargs)
    precisions.add(str(instance.mixed_precision))


def _made(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
    import torch

    wrapped(*args, **kwargs)
    if not is_on(Check.PRECISION):
        return

    def see(model: Any, _given: Any) -> None:
        if not torch.compiler.is_compiling() and torch.is_grad_enabled():
            handle.remove()
            safely(Check.PRECISION, _note, model)

    handle = instance.register_forward_pre_hook(see)


def _note(model: Any) -> None:
    import torch

    kind = next(model.parameters()).device.type
    ask = getattr(torch, "get_autocast_dtype", None)  # from torch 2.4 on
    if ask is not None and torch.is_autocast_enabled(kind):
        autocasts[model.module] = ask(kind)


def look_at(optimizer: Any, names: Mapping[int, str], where: str, *, by_engine: bool) -> None:
    """Reports dtypes that lose updates.

    Args:
        optimizer: about to make its first step.
        names: of its parameters, by id.
        where: the user's line that made it.
        by_engine: DeepSpeed makes its steps.
    """
    import torch

    every = list(parameters_of(optimizer))
    held = {id(param) for param in every}
    types = {
        dtype
        for model, dtype in list(autocasts.items())
        if any(id(param) in held for param in model.parameters())
    }
    kind, has_autocast = type(optimizer).__name__, "bf16" in precisions and not by_engine
    if torch.float16 in types and not scalers.used:
        report(precision.unscaled(kind, where))
    if not type(optimizer).__module__.startswith("torch.optim."):
        return
    alike = {
        names[id(param)]: param
        for param in every
        if param.grad is not None and param.grad.dtype is param.dtype
    }
    halves = list(_sizes_in(torch.float16, alike))
    others = sum(param.grad is not None for param in every) - len(halves)
    report(precision.without_master(kind, halves, others, where))
    if (has_autocast or torch.bfloat16 in types) and not _is_loaded_in_bf16():
        elements = sum(param.numel() for param in alike.values())
        sizes = _sizes_in(torch.bfloat16, alike)
        report(precision.without_copy(kind, sizes, elements, where))


def _sizes_in(dtype: Any, parameters: Mapping[str, Any]) -> dict[str, int]:
    """Elements of the parameters in a dtype, by name; single elements are scales."""
    return {
        name: param.numel()
        for name, param in parameters.items()
        if param.dtype is dtype and param.numel() > 1
    }


def _is_loaded_in_bf16() -> bool:
    """Whether transformers was asked to load a model in bfloat16, usually on purpose."""
    import torch

    for model in known_models():
        config = None if model in unasked else getattr(model, "config", None)
        # Before transformers 4.56 the name is `torch_dtype`, which newer versions warn about.
        name = "dtype" if hasattr(config, "dtype") else "torch_dtype"
        if getattr(config, name, None) is torch.bfloat16:
            return True
    return False
