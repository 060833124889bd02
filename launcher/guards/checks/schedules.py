"""Compares learning-rate schedules with the steps of their optimizers."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any

import wrapt

from ...checks import schedule
from ...checks.finding import Check
from ...evidence.observations import Observations
from .. import data_parallel
from ..callers import user_place
from .models import parameters_of
from .passes import Passes
from .rank_schedules import given_steps, length_of
from .told import looking, makes, tell

ACCELERATE = "accelerate.scheduler"
HOOKED = ("torch.optim.lr_scheduler", "torch.autograd", ACCELERATE)
MANY = 10
"""Steps in which a rate is to be above zero."""


class Schedules:
    """The schedules that there are, and what they have done between steps of their optimizers.

    Attributes:
        passes: backward passes so far.
        places: the user's lines that made the schedules.
        optimizers: the user's lines that made the optimizers whose steps are seen.
        stepped: those that have made any.
    """

    def __init__(self, observations: Observations) -> None:
        self.passes = 0
        self._used: dict[int, int] = {}  # by parameter: passes before the last step with it
        self.places: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self.optimizers: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self.stepped: weakref.WeakSet[Any] = weakref.WeakSet()
        self._observations = observations
        self._begun: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._still: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._seen: weakref.WeakKeyDictionary[Any, list[tuple[int, int]]]
        self._seen = weakref.WeakKeyDictionary()  # by schedule: its steps and the passes

    def made(self, scheduler: Any) -> None:
        """A schedule was made: by now it has its numbers of steps."""
        self._begun[scheduler] = int(scheduler.last_epoch)
        warmup, total = (
            given_steps(scheduler, f"num_{name}_steps") or 0 for name in ("warmup", "training")
        )
        kind = type(scheduler).__name__
        tell(self._observations, schedule.never_warm(kind, warmup, total, user_place()))

    def stepping(self, optimizer: Any, steps: int) -> None:
        """An optimizer is about to step: what lies between this and its last step is over.

        Args:
            optimizer: what steps.
            steps: those that it has made.
        """
        self.stepped.add(optimizer)
        if steps < MANY:
            self._used |= dict.fromkeys(map(id, parameters_of(optimizer)), self.passes)
        rates = [group.get("lr", 1) for group in optimizer.param_groups]
        is_still = not any(hasattr(rate, "item") or rate != 0 for rate in rates)
        self._still[optimizer] = self._still.get(optimizer, 0) + 1 if is_still else 0
        if self._still[optimizer] == steps + 1 == MANY:
            name = type(optimizer).__name__
            tell(self._observations, schedule.zero(name, steps + 1, self.optimizers[optimizer]))
        own = [each for each in self.places if _is_of(each, optimizer)]
        for scheduler in own:
            self._compare(scheduler, is_still=is_still, is_begin=steps < MANY)
        if steps == schedule.STEPS and not own:
            self._look_for_others(steps)

    def has_used(self, parameters: Sequence[Any]) -> bool:
        """Whether a step has used what these have got, and no backward pass has come since."""
        return all(0 < self.passes == self._used.get(id(each)) for each in parameters)

    def _look_for_others(self, steps: int) -> None:
        """A schedule that was stepped meanwhile, of an optimizer that wasn't."""
        for scheduler, where in list(self.places.items()):
            other = scheduler.optimizer
            is_idle = other in self.optimizers and other not in self.stepped
            if is_idle and scheduler.last_epoch - self._begun.get(scheduler, 0) >= steps - 1:
                name = type(scheduler).__name__
                tell(self._observations, schedule.of_nobody(name, steps, where))

    def _compare(self, scheduler: Any, *, is_still: bool, is_begin: bool) -> None:
        """Compares a schedule's steps with those of its optimizer."""
        where, name = self.places[scheduler], type(scheduler).__name__
        length = length_of(scheduler)
        if is_still and length:
            done = int(scheduler.last_epoch)
            tell(self._observations, schedule.over(name, length, done, where))
        if is_begin:
            seen = self._seen.setdefault(scheduler, [])
            seen.append((int(scheduler.last_epoch), self.passes))
            last = seen[-schedule.STEPS - 1 :]
            between = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(last)]
            counts, passes = [one for one, _ in between], [other for _, other in between]
            by_engine = any(
                getattr(each, "lr_scheduler", None) is scheduler for each in data_parallel.others
            )
            found = schedule.too_often(name, counts, passes, where, by_engine=by_engine)
            tell(self._observations, found)


def _is_of(scheduler: Any, optimizer: Any) -> bool:
    """Whether a schedule changes an optimizer's rates, which wrappers of it share."""
    own: Any = getattr(scheduler, "optimizer", None)
    return own is optimizer or getattr(own, "param_groups", None) is optimizer.param_groups


schedules_of = functools.cache(Schedules)


def install(module: ModuleType, observations: Observations) -> None:
    """Notes every schedule, and counts backward passes by a plain function, which costs least."""
    schedules: Schedules = schedules_of(observations)

    def made(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
        schedules.places[instance] = user_place()
        wrapped(*args, **kwargs)
        looking(observations, Check.SCHEDULE, schedules.made, instance)

    def wraps(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> None:
        schedules.places.pop(args[0] if args else kwargs.get("scheduler"), None)
        wrapped(*args, **kwargs)  # which steps it once for each process

    match module.__name__:
        case "torch.autograd":
            module.backward = _counted(  # type: ignore[attr-defined]
                module.backward, schedules, observations
            )
        case "torch.optim.lr_scheduler":
            wrapt.wrap_function_wrapper(module, "LRScheduler.__init__", made)
        case _:
            wrapt.wrap_function_wrapper(module, "AcceleratedScheduler.__init__", wraps)


def _counted(function: Any, schedules: Schedules, observations: Observations) -> Any:
    import torch

    first = Passes(observations)

    @functools.wraps(function)
    def backward(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            schedules.passes += 1
            if first.is_open and args and makes(Check.DIVIDED):
                looking(observations, Check.DIVIDED, first.look, *args[:2])
        return function(*args, **kwargs)

    return backward
