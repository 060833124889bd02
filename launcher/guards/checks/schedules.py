"""Compares the steps of learning-rate schedules with those of their optimizers."""

from __future__ import annotations

import functools
import weakref
from itertools import pairwise
from types import ModuleType
from typing import Any

import wrapt

from ...checks import schedule
from ...evidence.observations import Observations
from .. import data_parallel
from ..callers import user_place
from .told import tell

ACCELERATE = "accelerate.scheduler"
HOOKED = ("torch.optim.lr_scheduler", "torch.autograd", ACCELERATE)


class Schedules:
    """The schedules that there are, and what they have done between steps of their optimizers.

    Attributes:
        passes: backward passes so far.
        places: the user's lines that made the schedules.
    """

    def __init__(self, observations: Observations) -> None:
        self.passes = 0
        self.places: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._observations = observations
        self._seen: weakref.WeakKeyDictionary[Any, list[tuple[int, int]]]
        self._seen = weakref.WeakKeyDictionary()  # by schedule: its steps and the passes

    def stepping(self, optimizer: Any) -> None:
        """An optimizer is about to step: what lies between this and its last step is over."""
        for scheduler, where in list(self.places.items()):
            if getattr(scheduler, "optimizer", None) is not optimizer:
                continue
            seen = self._seen.setdefault(scheduler, [])
            seen.append((int(scheduler.last_epoch), self.passes))
            last = seen[-schedule.STEPS - 1 :]
            between = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(last)]
            counts, passes = [one for one, _ in between], [other for _, other in between]
            by_engine = any(
                getattr(each, "lr_scheduler", None) is scheduler for each in data_parallel.others
            )
            found = schedule.too_often(
                type(scheduler).__name__, counts, passes, where, by_engine=by_engine
            )
            tell(self._observations, found)


schedules_of = functools.cache(Schedules)


def install(module: ModuleType, observations: Observations) -> None:
    """Notes every schedule, and counts backward passes by a plain function, which costs least."""
    schedules: Schedules = schedules_of(observations)

    def made(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
        schedules.places[instance] = user_place()
        wrapped(*args, **kwargs)

    def wraps(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> None:
        schedules.places.pop(args[0] if args else kwargs.get("scheduler"), None)
        wrapped(*args, **kwargs)  # which steps it once for each process

    match module.__name__:
        case "torch.autograd":
            module.backward = _counted(module.backward, schedules)  # type: ignore[attr-defined]
        case "torch.optim.lr_scheduler":
            wrapt.wrap_function_wrapper(module, "LRScheduler.__init__", made)
        case _:
            wrapt.wrap_function_wrapper(module, "AcceleratedScheduler.__init__", wraps)


def _counted(function: Any, schedules: Schedules) -> Any:
    import torch

    @functools.wraps(function)
    def backward(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            schedules.passes += 1
        return function(*args, **kwargs)

    return backward
