"""Detects a schedule that accelerate steps once per rank, so that it ends far too early.

accelerate expects a schedule as long as its undivided loader: per optimizer step, it steps the
schedule as many times as there are ranks.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ...checks.finding import Check, Finding
from ...checks.schedule_length import BEYOND
from ...core.count_of import count_of
from ...core.errors import EXPLAINED
from ...evidence.observations import observations
from ..callers import user_place
from .reporting import is_on, report_here

HOOKED = ("accelerate.scheduler",)


@dataclass(slots=True)
class _Schedule:
    """A schedule that accelerate steps once per rank.

    Attributes:
        length: steps until its final rate.
        at: the user's line that passed it to accelerate.
        repeats: whether it then begins again.
        steps: optimizer steps since.
    """

    length: int
    at: str
    repeats: bool
    steps: int = 0


_schedules: weakref.WeakKeyDictionary[Any, _Schedule] = weakref.WeakKeyDictionary()


def install(module: ModuleType) -> None:
    """Wraps accelerate's scheduler."""
    wrap = partial(wrapt.wrap_function_wrapper, module)
    wrap("AcceleratedScheduler.__init__", partial(_made, module))
    wrap("AcceleratedScheduler.step", partial(_stepped, module))


def _made(module: Any, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
    wrapped(*args, **kwargs)
    with suppress(Exception):  # a schedule that can't be read isn't judged
        is_by_rank = instance.step_with_optimizer and not instance.split_batches
        is_by_rank = is_by_rank and is_on(Check.SCHEDULE)
        half = half_period(instance.scheduler)
        length = half or length_of(instance.scheduler)
        if is_by_rank and length and module.AcceleratorState().num_processes > 1:
            _schedules[instance] = _Schedule(length, user_place(), bool(half))


def _stepped(module: Any, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    result = wrapped(*args, **kwargs)
    schedule = _schedules.get(instance)
    if schedule is not None:
        with suppress(Exception):
            is_step = instance.gradient_state.sync_gradients
            is_step = is_step and not any(
                optimizer.step_was_skipped for optimizer in instance.optimizers
            )
            schedule.steps += is_step
            ranks = module.AcceleratorState().num_processes
            if schedule.steps * ranks > BEYOND * schedule.length + ranks:
                del _schedules[instance]
                finding = Finding(
                    Check.SCHEDULE,
                    certain=not schedule.repeats,
                    sentence=f"a schedule of {count_of(schedule.length, 'step')} was over after "
                    f"{count_of(-(-schedule.length // ranks), 'optimizer step')}: accelerate "
                    f"({schedule.at}) steps it once a rank, {ranks} times for each step()",
                    advice=f"Make it {ranks} times as long: num_training_steps * "
                    f"accelerator.num_processes ({EXPLAINED})",
                    step=observations.step(),
                )
                report_here(finding)
    return result


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
