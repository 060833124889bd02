"""Notes whether models compute under autocast to float16."""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import Any

import wrapt

from ...checks.finding import Check
from ...evidence.observations import Observations
from .told import makes

HOOKED = ("torch.nn.parallel.distributed",)

in_half: weakref.WeakSet[Any] = weakref.WeakSet()
"""The models whose first pass in training was so, without their wrappers."""


def install(module: ModuleType, _observations: Observations) -> None:
    """Looks at the first pass of models under DistributedDataParallel."""
    wrapt.wrap_function_wrapper(module, "DistributedDataParallel.__init__", _made)


def _made(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
    wrapped(*args, **kwargs)
    if makes(Check.PRECISION):
        handle: Any = instance.register_forward_pre_hook(lambda *given: _see(handle, *given))


def _see(handle: Any, model: Any, _given: Any) -> None:
    import torch

    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return
    handle.remove()
    kind = next(model.parameters()).device.type
    ask = getattr(torch, "get_autocast_dtype", None)  # from torch 2.4 on
    if ask is not None and torch.is_autocast_enabled(kind) and ask(kind) is torch.float16:
        in_half.add(model.module)
