"""Calls that checks look at: how they are shown, and what of torch's runs then."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import wrapt

from ...checks.finding import Check
from .. import data_parallel
from ..divided_data import tensors_in
from .copies import is_plain
from .reporting import is_on, safely

CALL = "_call_impl"
"""torch's function that calls a module's forward (recognized only)."""
CHECKPOINT = "torch/utils/checkpoint.py"
"""The file of torch's function that checkpoints a block."""


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
        # A copy of the module keeps the hook.
        if left <= 0 or torch.compiler.is_compiling() or not when(module):
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


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function of torch's.

    Attributes:
        name: the function.
        args: positional arguments.
        kwargs: the others.
        made: its result.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    made: Any

    def argument(self, place: int, name: str, default: Any = None) -> Any:
        """An argument, by its place or name."""
        return argument(self.args, self.kwargs, place, name, default)

    @property
    def is_trained(self) -> bool:
        """Whether the result has a gradient."""
        return bool(getattr(self.made, "requires_grad", False))


class Watch:
    """Looks at the calls of a process's first steps.

    Attributes:
        check: the check.
        is_open: whether to look at further calls.
    """

    check = Check.TRAINED

    def __init__(self) -> None:
        self.is_open = True

    def look(self, call: Call) -> None:
        """Looks at a call."""
        raise NotImplementedError


@dataclass(slots=True)
class Running:
    """What runs.

    Attributes:
        modules: the modules whose forward runs, innermost first.
        args: positional arguments of the outermost.
        kwargs: its others.
        is_within_function: whether gradients may be off because of a checkpoint or an autograd
            function, although the pass is trained.
        is_drawn_anew: whether a checkpoint will draw other random values when it recomputes.
    """

    modules: list[Any] = field(default_factory=list)
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    is_within_function: bool = False
    is_drawn_anew: bool = False

    @property
    def outermost(self) -> Any:
        """The outermost module; None outside of modules."""
        return self.modules[-1] if self.modules else None

    @property
    def words(self) -> list[Any]:
        """What may be rows of tokens among the outermost's arguments."""
        import torch

        given = (each for each in tensors_in((self.args, self.kwargs)) if is_plain(each))
        return [each for each in given if each.ndim == 2 and each.dtype is torch.int64]


def running() -> Running:
    """What runs on this thread."""
    found = Running()
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name == CALL:
            values = frame.f_locals
            found.modules.append(values.get("self"))
            found.args, found.kwargs = values.get("args", ()), values.get("kwargs", {})
        elif _is_checkpoint(code):
            found.is_within_function = True
            if code.co_name == "checkpoint" and code.co_filename.endswith(CHECKPOINT):
                found.is_drawn_anew |= _draws_anew(frame.f_locals)
        elif code.co_varnames[:1] == ("ctx",):
            found.is_within_function = True
        frame = frame.f_back  # type: ignore[assignment]
    return found


def _draws_anew(values: Mapping[str, Any]) -> bool:
    """Whether a call of torch's `checkpoint` will recompute with other random values."""
    import torch

    is_trained = torch.is_grad_enabled() or any(
        getattr(each, "requires_grad", False) for each in values.get("args", ())
    )
    return is_trained and values.get("preserve") is False


def _is_checkpoint(code: CodeType) -> bool:
    return "checkpoint" in code.co_filename.rpartition("/")[2]


def is_trained_pass(model: Any) -> bool:
    """Whether a model's pass is trained, and runs as Python."""
    import torch

    is_trained = not torch.compiler.is_compiling() and torch.is_grad_enabled()
    return is_trained and bool(data_parallel.inner(model).training)
