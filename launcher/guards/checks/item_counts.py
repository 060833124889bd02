"""Detects losses that ignore the number of items, which a Trainer takes for divided by it.

In one pass, the number is a tensor that notes whether any operation uses it.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from types import ModuleType
from typing import Any

import wrapt

from ...checks import divided
from ...checks.finding import Check
from ...workload.script.losses import ACCUMULATION
from ..callers import place, user_place
from ..model_facts import base_of
from .reporting import is_on, report, safely

HOOKED = ("transformers.trainer",)
INDEX = 2
"""Place of the number among the arguments with which the Trainer calls its `training_step`."""


def install(module: ModuleType) -> None:
    """Wraps each Trainer's first step."""
    is_open = True

    def step(wrapped: Any, trainer: Any, args: Any, kwargs: Any) -> Any:
        nonlocal is_open
        noting = None
        if is_open and len(args) > INDEX and (is_open := is_on(Check.DIVIDED)):
            with suppress(Exception):  # an unusual Trainer
                noting = (
                    _noting(args[INDEX]) if _is_left_to_the_loss(trainer, args[INDEX]) else None
                )
        if noting is None:
            return wrapped(*args, **kwargs)
        is_open = False
        result = wrapped(*args[:INDEX], noting, *args[INDEX + 1 :], **kwargs)
        if not noting.is_used:
            safely(Check.DIVIDED, _judge, trainer)
        return result

    wrapt.wrap_function_wrapper(module, "Trainer.training_step", step)


def _is_left_to_the_loss(trainer: Any, count: Any) -> bool:
    """Whether a Trainer takes the loss for divided by the number of items."""
    arguments, is_passed = trainer.args, _function(trainer) is not None
    return (
        hasattr(count, "as_subclass")
        and arguments.n_gpu < 2
        and not getattr(arguments, "torch_compile", False)
        and (is_passed or bool(getattr(trainer, "model_accepts_loss_kwargs", False)))
        and getattr(trainer, "loss_is_scaled_for_ga", None) is None
        and _factor(trainer) > 1
        and (
            arguments.gradient_accumulation_steps > 1
            or is_passed
            or not _is_of_transformers(trainer)
        )
    )


def _function(trainer: Any) -> Any:
    """The `compute_loss_func` that the Trainer calls; None if it has none."""
    function = getattr(trainer, "compute_loss_func", None)
    return None if function is None or _has_own_loss(trainer) else function


def _is_of_transformers(trainer: Any) -> bool:
    """Whether the model is one of transformers.

    Many of these ignore the number (5.24: classification, masked words, T5, BART). On several ranks
    all their trainings have such gradients, so only accumulation is worth a finding.
    """
    return type(_model(trainer)).__module__.startswith("transformers.")


def _model(trainer: Any) -> Any:
    """The model without its wrappers and adapters."""
    return base_of(trainer.accelerator.unwrap_model(trainer.model))


def _factor(trainer: Any) -> int:
    """How many times too large the gradients of a mean are.

    The Trainer doesn't divide by the accumulation, and its `compute_loss` multiplies by the number
    of processes, as all their items are counted (transformers/trainer.py).
    """
    arguments = trainer.args
    is_multiplied = not _has_own_loss(trainer) and arguments.average_tokens_across_devices
    processes = trainer.accelerator.num_processes if is_multiplied else 1
    return int(arguments.gradient_accumulation_steps * processes)


def _has_own_loss(trainer: Any) -> bool:
    return not type(trainer).compute_loss.__module__.startswith("transformers.")


def _noting(count: Any) -> Any:
    """The number as a tensor whose `is_used` is set by its first use in an operation."""
    import torch

    class Noting(torch.Tensor):  # type: ignore[misc]
        is_used = False

        @classmethod
        def __torch_function__(
            cls, function: Any, _types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = torch.Tensor.__torch_function__(function, (), args, kwargs or {})
            if function is torch.Tensor.to and isinstance(args[0], cls):
                return result.as_subclass(cls)  # as DDP passes it on
            if getattr(function, "__name__", "") != "__get__":
                Noting.is_used = True
            return result

    return count.as_subclass(Noting)


def _judge(trainer: Any) -> None:
    """Reports the code that computes the loss."""
    model = _model(trainer)
    function, name = type(model).forward, f"the loss of {type(model).__name__}"
    passed = _function(trainer)
    if passed is not None:
        function = getattr(passed, "func", passed)  # of functools.partial
        name = function.__name__
    elif _has_own_loss(trainer):
        function = type(trainer).compute_loss
        name = function.__qualname__
    lines, line = inspect.getsourcelines(function)
    file = inspect.getsourcefile(function) or ""
    if not any(map(ACCUMULATION.search, lines)):
        where = user_place() if "-packages/" in file else place(file, line)
        is_passed = passed is not None
        report(divided.undivided(name, _factor(trainer), where, is_passed=is_passed))
