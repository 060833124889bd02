"""Looks at the calls of torch's schedules: their order, their arguments and their distance."""

from __future__ import annotations

import functools
import linecache
import weakref
from collections import Counter
from types import ModuleType
from typing import Any

from ...checks import sampling, schedule_calls
from ...checks.between_ranks import Compared, Shared
from ...checks.finding import Check
from ...evidence.observations import observations
from .. import data_parallel
from ..callers import user_frames, user_place
from .collectives import decide
from .models import parameters_of
from .replicas import unjudged
from .reporting import is_on, report, report_here, safely
from .schedule_lengths import EPOCHS, planned
from .schedules import schedules

HOOKED = ("torch.optim.lr_scheduler",)
STEPPING = ("LRScheduler", "CosineAnnealingWarmRestarts", "SequentialLR", "ChainedScheduler")
"""Classes with a step of their own."""
JOINING = ("SequentialLR", "ChainedScheduler")
"""Schedules that step others."""
PLATEAU = "ReduceLROnPlateau"
MOST = 12
"""Steps of a schedule to look at."""
COMPARED = 100
"""Steps of a plateau whose rates are compared between ranks."""
GROUPS = 16
"""Groups of an optimizer whose rates are compared."""


class Calls:
    """The steps of a script's schedules.

    Attributes:
        depth: schedules that are stepping, some of which step others.
    """

    def __init__(self) -> None:
        self.depth = 0
        self._made: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._turns: weakref.WeakKeyDictionary[Any, tuple[int, dict[int, str], int]]
        self._turns = weakref.WeakKeyDictionary()  # by optimizer: steps, schedules, repetitions
        self._steps: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()
        self._given: weakref.WeakKeyDictionary[Any, list[float]] = weakref.WeakKeyDictionary()
        self._places: Counter[str] = Counter()

    def is_due(self, scheduler: Any) -> bool:
        """Whether to look at this step; counts it."""
        made = self._made.get(scheduler, 0)
        if made < MOST:
            self._made[scheduler] = made + 1
        return made < MOST

    def step(self, scheduler: Any, epoch: Any) -> None:
        """Looks at a step by the script, outside of schedules that join others."""
        kind = type(scheduler).__name__
        watched = schedules.optimizers.get(scheduler.optimizer)
        if watched is None or not watched.steps:
            return  # the step of its making
        if epoch is not None and type(scheduler).__module__ == HOOKED[0]:
            self._look_at_epoch(scheduler, kind, epoch)
        self._take_turns(scheduler, watched.steps, kind)
        seen = self._steps.setdefault(scheduler, [])
        seen.append(watched.steps)
        total = schedules.totals.get(scheduler)
        if len(seen) == 2 and seen[1] == 2 * seen[0] and total is not None:
            epochs = planned(EPOCHS)
            file, _, line = total.where.rpartition(":")
            if line and "len(" in linecache.getline(file, int(line)):
                epochs.add(total.steps // seen[0])
            finding = schedule_calls.in_epochs(kind, total.steps, seen[0], epochs)
            report(finding, where=total.where, step=seen[1])

    def _look_at_epoch(self, scheduler: Any, kind: str, epoch: Any) -> None:
        """Looks at the argument of a schedule's step: fractions of epochs rise."""
        if kind in ("CosineAnnealingWarmRestarts", *JOINING):
            return
        is_metric = hasattr(epoch, "is_floating_point") and epoch.is_floating_point()
        if isinstance(epoch, float) and not epoch.is_integer():
            seen = self._given.setdefault(scheduler, [])
            is_metric = any(epoch < other for other in seen)
            seen.append(epoch)
        if is_metric:
            report_here(schedule_calls.METRIC_AS_EPOCH.found(kind=kind))

    def _take_turns(self, scheduler: Any, steps: int, kind: str) -> None:
        """Counts how often several schedules step between two steps of their optimizer."""
        last, kinds, times = self._turns.get(scheduler.optimizer, (0, {}, 0))
        if steps != last:
            times = times + 1 if len(kinds) > 1 else 0
            report_here(schedule_calls.overwriting([*kinds.values()], times), step=last)
            kinds = {}
        self._turns[scheduler.optimizer] = steps, {**kinds, id(scheduler): kind}, times

    def plateau(self, scheduler: Any, metric: Any) -> None:
        """Looks at a plateau's metric."""
        if isinstance(metric, float):
            seen = self._given.setdefault(scheduler, [])
            seen.append(metric)
            text = linecache.getline(*next(user_frames(), ("", 0)))
            report_here(schedule_calls.turned(scheduler.mode, seen, text))

    def compare(self, scheduler: Any) -> None:
        """Sends the rates that a plateau leaves, which all ranks must have alike."""
        optimizer = scheduler.optimizer
        watched = schedules.optimizers.get(optimizer)
        if watched is None or unjudged or not _is_shared(optimizer):
            return
        rates = [group.get("lr") for group in optimizer.param_groups[:GROUPS]]
        place = user_place()
        self._places[place] += 1
        if self._places[place] <= COMPARED and all(isinstance(rate, float) for rate in rates):
            value = " ".join(f"{rate:.6g}" for rate in rates)
            place = f"{place}#{self._places[place]}"
            observations.send(Compared(Shared.RATES, value, place, watched.steps))


def _is_shared(optimizer: Any) -> bool:
    """Whether all ranks train the same weights by an optimizer."""
    if data_parallel.world() < 2:
        return False
    alike = data_parallel.replicated()
    return len(data_parallel.others) > 0 or any(
        id(param) in alike for param in parameters_of(optimizer)
    )


calls = Calls()


def install(module: ModuleType) -> None:
    """Wraps the step of each class that has one of its own."""
    for name in STEPPING:
        kind = getattr(module, name, None)
        if kind is not None and "step" in vars(kind):
            kind.step = _looking(kind.step)
    kind = getattr(module, PLATEAU)
    kind.step = _comparing(kind.step)


def _looking(function: Any) -> Any:
    """Wraps a schedule's step."""

    @functools.wraps(function)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if calls.depth or not is_on(Check.SCHEDULE) or not calls.is_due(self):
            return function(self, *args, **kwargs)
        safely(Check.SCHEDULE, calls.step, self, args[0] if args else kwargs.get("epoch"))
        calls.depth += 1
        try:
            return function(self, *args, **kwargs)
        finally:
            calls.depth -= 1

    return step


def _comparing(function: Any) -> Any:
    """Wraps a plateau's step."""

    @functools.wraps(function)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        decide(sampling.LOWERS)
        metric = args[0] if args else kwargs.get("metrics")
        if calls.is_due(self) and is_on(Check.SCHEDULE):
            safely(Check.SCHEDULE, calls.plateau, self, metric)
        result = function(self, *args, **kwargs)
        if is_on(Check.REPLICAS):
            safely(Check.REPLICAS, calls.compare, self)
        return result

    return step
