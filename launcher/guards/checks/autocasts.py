"""Notes whether models compute under autocast to float16."""

from __future__ import annotations

import weakref
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ...checks.finding import Check
from ...evidence.observations import Observations
from .told import looking, makes

HOOKED = ("torch.nn.parallel.distributed",)

in_half: weakref.WeakSet[Any] = weakref.WeakSet()
"""The models whose first pass in training was so, without their wrappers."""


def install(module: ModuleType, observations: Observations) -> None:
    """Looks at the first pass of models under DistributedDataParallel."""
    made = partial(_made, observations)
    wrapt.wrap_function_wrapper(module, "DistributedDataParallel.__init__", made)


def _made(observations: Observations, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
    import torch

    wrapped(*args, **kwargs)
    if not makes(Check.PRECISION):
        return

    def see(model: Any, _given: Any) -> None:
        if not torch.compiler.is_compiling() and torch.is_grad_enabled():
            handle.remove()
            looking(observations, Check.PRECISION, _look, model)

    handle = instance.register_forward_pre_hook(see)


def _look(model: Any) -> None:
    import torch

    kind = next(model.parameters()).device.type
    ask = getattr(torch, "get_autocast_dtype", None)  # from torch 2.4 on
    if ask is not None and torch.is_autocast_enabled(kind) and ask(kind) is torch.float16:
        in_half.add(model.module)
