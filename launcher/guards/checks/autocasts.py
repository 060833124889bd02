"""Notes the dtype in which models compute under autocast."""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import Any

import wrapt

from ...checks.finding import Check
from .reporting import is_on, safely

ACCELERATE = "accelerate.accelerator"
HOOKED = ("torch.nn.parallel.distributed", ACCELERATE)

types: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""By unwrapped model: the autocast dtype of its first training pass; no entry without autocast."""
asked: set[str] = set()
"""Mixed precisions of the Accelerators, e.g. `bf16`."""


def install(module: ModuleType) -> None:
    """Inspects the first pass of DistributedDataParallel models, and Accelerators."""
    if module.__name__ == ACCELERATE:
        wrapt.wrap_function_wrapper(module, "Accelerator.__init__", _accelerated)
        return
    wrapt.wrap_function_wrapper(module, "DistributedDataParallel.__init__", _made)


def _accelerated(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
    wrapped(*args, **kwargs)
    asked.add(str(instance.mixed_precision))


def _made(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
    import torch

    wrapped(*args, **kwargs)
    if not is_on(Check.PRECISION):
        return

    def see(model: Any, _given: Any) -> None:
        if not torch.compiler.is_compiling() and torch.is_grad_enabled():
            handle.remove()
            safely(Check.PRECISION, _look, model)

    handle = instance.register_forward_pre_hook(see)


def _look(model: Any) -> None:
    import torch

    kind = next(model.parameters()).device.type
    ask = getattr(torch, "get_autocast_dtype", None)  # from torch 2.4 on
    if ask is not None and torch.is_autocast_enabled(kind):
        types[model.module] = ask(kind)
