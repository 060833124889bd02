"""Notices a schedule that accelerate steps once a rank, and that is over long before the training.

accelerate means a schedule to be as long as its loader before it was divided among the ranks: for
each step of the optimizer it steps the schedule as often as there are ranks.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ..core.count_of import count_of
from ..evidence.observations import Observations
from ..workload.contradictions import EXPLAINED
from .callers import user_place

HOOKED = ("accelerate.scheduler",)
BEYOND = 1.5
"""How far a training goes beyond a schedule's end, as a part of its length, until it is told: the
last batches of epochs, and of accumulations, make schedules a little too short."""


@dataclass(slots=True)
class _Schedule:
    """A schedule that accelerate steps once a rank.

    Attributes:
        length: its steps, of which the last reaches its final rate.
        at: the user's line that gave it to accelerate.
        steps: the optimizer's steps since.
    """

    length: int
    at: str
    steps: int = 0


_schedules: weakref.WeakKeyDictionary[Any, _Schedule] = weakref.WeakKeyDictionary()


def install(module: ModuleType, observations: Observations) -> None:
    """Wraps accelerate's scheduler."""
    wrap = partial(wrapt.wrap_function_wrapper, module)
    wrap("AcceleratedScheduler.__init__", partial(_made, module))
    wrap("AcceleratedScheduler.step", partial(_stepped, module, observations))


def _made(module: Any, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
    wrapped(*args, **kwargs)
    with suppress(Exception):  # of a schedule that can't be read nothing is told
        is_by_rank = instance.step_with_optimizer and not instance.split_batches
        length = length_of(instance.scheduler)
        if is_by_rank and length and module.AcceleratorState().num_processes > 1:
            _schedules[instance] = _Schedule(length, user_place())


def _stepped(
    module: Any, observations: Observations, wrapped: Any, instance: Any, args: Any, kwargs: Any
) -> Any:
    result = wrapped(*args, **kwargs)
    schedule = _schedules.get(instance)
    if schedule is not None:
        with suppress(Exception):
            is_step = instance.gradient_state.sync_gradients
            is_step = is_step and not any(each.step_was_skipped for each in instance.optimizers)
            schedule.steps += is_step
            ranks = module.AcceleratorState().num_processes
            if schedule.steps * ranks > BEYOND * schedule.length + ranks:
                del _schedules[instance]
                observations.remark(_sentence(schedule, ranks))
    return result


def _sentence(schedule: _Schedule, ranks: int) -> str:
    ended = -(-schedule.length // ranks)
    return (
        f"a schedule of {count_of(schedule.length, 'step')} was over after "
        f"{count_of(ended, 'optimizer step')}: "
        f"accelerate ({schedule.at}) steps it once a rank, {ranks} times for each step() at "
        f"{user_place()}. Make it {ranks} times as long: num_training_steps * "
        f"accelerator.num_processes ({EXPLAINED})"
    )


def length_of(scheduler: Any) -> int | None:
    """The steps after which a schedule has reached its end for good; None for any other.

    Schedules that repeat, warm up or stay constant have none: torch's OneCycleLR and PolynomialLR
    have, and those of transformers that are told the number of steps.
    """
    kind = type(scheduler).__name__
    if kind == "LambdaLR":
        named = (getattr(each, "keywords", {}) for each in scheduler.lr_lambdas)
        lengths = {each.get("num_training_steps") for each in named}
        length = lengths.pop() if len(lengths) == 1 else None
    else:
        names = {"OneCycleLR": "total_steps", "PolynomialLR": "total_iters"}
        length = getattr(scheduler, names.get(kind, ""), None)
    return length if isinstance(length, int) and length > 0 else None
