"""Reads how long a schedule is, from the attributes of torch's and transformers' schedulers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from types import FunctionType
from typing import Any

LEAST = 1e-12
"""Minimum part of the rate at the step before a schedule's end."""


def length_of(scheduler: Any) -> int | None:
    """Steps until a schedule's final rate; None if it has none.

    Schedules that repeat, warm up or stay constant have none. torch's OneCycleLR, PolynomialLR and
    falling LinearLR have one, and transformers' schedules with a number of steps.
    """
    kind = type(scheduler).__name__
    if kind == "LambdaLR":
        return given_steps(scheduler, "num_training_steps") or _end_of(scheduler.lr_lambdas)
    names = {"OneCycleLR": "total_steps", "PolynomialLR": "total_iters", "LinearLR": "total_iters"}
    if kind == "LinearLR" and scheduler.end_factor >= scheduler.start_factor:
        return None
    return _positive(getattr(scheduler, names.get(kind, ""), None))


def _end_of(functions: Sequence[Any]) -> int | None:
    """The step from which on a function of the script's gives no rate; None if there is none."""
    function = functions[0]
    if len({*functions}) > 1 or not isinstance(function, FunctionType):
        return None

    def is_over(step: int) -> bool:
        return bool(0 == function(step) == function(2 * step) == function(3 * step))

    late = next((step for step in (1 << power for power in range(4, 24)) if is_over(step)), None)
    if late is None:
        return None
    end = bisect_left(range(late), x=True, lo=late // 2, key=is_over)
    return end if function(end - 1) > LEAST else None  # a decay that rounding has made 0


def half_period(scheduler: Any) -> int | None:
    """Steps until a cosine's minimum, from which it rises again; None for other schedules."""
    is_cosine = type(scheduler).__name__ == "CosineAnnealingLR"
    return _positive(scheduler.T_max) if is_cosine else None


def given_steps(scheduler: Any, name: str) -> int | None:
    """A step count argument of a transformers schedule."""
    given = (getattr(function, "keywords", {}) for function in getattr(scheduler, "lr_lambdas", ()))
    numbers = {keywords.get(name) for keywords in given}
    return _positive(numbers.pop() if len(numbers) == 1 else None)


def _positive(number: object) -> int | None:
    return number if isinstance(number, int) and number > 0 else None
