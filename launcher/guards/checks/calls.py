"""Shows calls of functions, and first forward passes of modules, to checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import wrapt

from ...checks.finding import Check
from .reporting import is_on, safely

Look = Callable[..., object]
"""Callback for a method's object, its arguments by place and by name, and its result if known."""


def argument(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], place: int, name: str, default: Any = None
) -> Any:
    """An argument of a call, by its place or name."""
    return args[place] if len(args) > place else kwargs.get(name, default)


def before(owner: Any, path: str, check: Check, look: Look) -> None:
    """Shows the calls of a function to a check as they begin."""

    def wrapper(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        if is_on(check):
            safely(check, look, instance, args, kwargs)
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(owner, path, wrapper)


def after(owner: Any, path: str, check: Check, look: Look) -> None:
    """Shows the calls of a function, and their results, to a check."""

    def wrapper(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        result = wrapped(*args, **kwargs)
        if is_on(check):
            safely(check, look, instance, args, kwargs, result)
        return result

    wrapt.wrap_function_wrapper(owner, path, wrapper)


def first_passes(
    module: Any,
    check: Check,
    look: Look,
    most: int = 1,
    *,
    when: Callable[[Any], bool] = lambda _: True,
) -> None:
    """Shows a module's first forward passes to a check, with their arguments.

    Args:
        module: the module.
        check: the check.
        look: the callback, without a result.
        most: number of passes.
        when: whether a pass of the module counts.
    """
    import torch

    left = most

    def see(module: Any, args: Any, kwargs: Any) -> None:
        nonlocal left
        if torch.compiler.is_compiling() or not when(module):
            return
        left -= 1
        if not left:
            handle.remove()
        safely(check, look, module, args, kwargs)

    handle = module.register_forward_pre_hook(see, with_kwargs=True)


def with_gradients(_module: Any) -> bool:
    """Whether a pass is for a training."""
    import torch

    return bool(torch.is_grad_enabled())
