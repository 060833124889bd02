"""Reads how long a schedule is, from the attributes of torch's and transformers' schedulers."""

from __future__ import annotations

from typing import Any


def length_of(scheduler: Any) -> int | None:
    """Steps until a schedule's final rate; None if it has none.

    Schedules that repeat, warm up or stay constant have none. torch's OneCycleLR, PolynomialLR and
    falling LinearLR have one, and transformers' schedules with a number of steps.
    """
    kind = type(scheduler).__name__
    if kind == "LambdaLR":
        return given_steps(scheduler, "num_training_steps")
    names = {"OneCycleLR": "total_steps", "PolynomialLR": "total_iters", "LinearLR": "total_iters"}
    if kind == "LinearLR" and scheduler.end_factor >= scheduler.start_factor:
        return None
    return _positive(getattr(scheduler, names.get(kind, ""), None))


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
