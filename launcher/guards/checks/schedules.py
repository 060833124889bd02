"""Compares learning-rate schedules with the steps of their optimizers."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType
from typing import Any, Protocol

import wrapt

from ...checks import resumed, schedule
from ...checks.finding import Check
from ...core.quantities import count_of
from .. import data_parallel
from ..callers import user_place
from .accumulation import Accumulated, Clipped, Kept
from .models import parameters_of
from .reporting import is_on, report, safely
from .schedule_lengths import EPOCHS, given_steps, half_period, length_of, planned

TRAINER = "transformers.trainer"
HOOKED = ("torch.optim.lr_scheduler", TRAINER)
SLACK = 5
"""Steps by which a schedule may be ahead of its optimizer, as a scaler skips some."""
FORESEEN = 2
"""Optimizer steps after which a schedule's length is compared with the planned epochs."""
MANY = 10
"""Steps within which a rate must rise above zero."""


class Watched(Protocol):
    """Step count, creating line and first parameters' ids of a watched optimizer."""

    steps: int
    where: str
    made_with: frozenset[int]


@dataclass(slots=True)
class Total:
    """A schedule's total steps, to compare with its optimizer's at the end.

    Attributes:
        kind: class of the schedule.
        steps: steps until its final rate.
        where: the user's line that created it.
        optimizer: class of its optimizer.
        before: optimizer steps and backward passes before its creation.
        ranks: schedule steps per optimizer step.
    """

    kind: str
    steps: int
    where: str
    optimizer: Watched
    before: tuple[int, int]
    ranks: int = 1


class Schedules:
    """All schedules, and their steps between those of their optimizers.

    Attributes:
        passes: backward passes so far.
        batches: of this rank, by the loader begun last with gradients enabled; 0 if it has no
            length.
        places: the user's lines that created the schedules.
        totals: of schedules with a total.
        optimizers: the watched optimizers.
        stepped: optimizers with at least one step.
        clipped: the gradients that were clipped last.
        accumulated: the passes since the last step.
        kept: the gradients that steps leave.
    """

    def __init__(self) -> None:
        self.passes = self.batches = 0
        self.totals: weakref.WeakKeyDictionary[Any, Total] = weakref.WeakKeyDictionary()
        self._used: dict[int, int] = {}  # by parameter: passes before the last step with it
        self.places: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self.optimizers: weakref.WeakKeyDictionary[Any, Watched] = weakref.WeakKeyDictionary()
        self.stepped: weakref.WeakSet[Any] = weakref.WeakSet()
        self.clipped = Clipped(lambda: list(self.optimizers))
        self.accumulated = Accumulated(lambda: self.optimizers)
        self.kept = Kept(lambda: self.optimizers)
        self._begun: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._still: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._moved: weakref.WeakSet[Any] = weakref.WeakSet()  # those whose rate was above 0
        self._continued: weakref.WeakSet[Any] = weakref.WeakSet()  # until their next step
        self._seen: weakref.WeakKeyDictionary[Any, list[tuple[int, int]]]
        self._seen = weakref.WeakKeyDictionary()  # by schedule: its steps and the passes

    def begin(self, loader: Any) -> None:
        """Records a loader whose batches begin; not one of an evaluation."""
        import torch

        self.accumulated.begin()
        if torch.is_grad_enabled():
            self.batches = 0
            self.batches = len(loader)  # a stream has none, and raises

    def made(self, scheduler: Any) -> None:
        """Records a new schedule, whose step counts are set."""
        self._begun[scheduler] = int(scheduler.last_epoch)
        warmup = given_steps(scheduler, "num_warmup_steps") or 0
        training = given_steps(scheduler, "num_training_steps") or 0
        kind, where = type(scheduler).__name__, self.places[scheduler]
        report(schedule.never_warm(kind, warmup, training), where=where)
        length = length_of(scheduler) or half_period(scheduler)
        watched = next((self.optimizers[o] for o in self.optimizers if _is_of(scheduler, o)), None)
        if length and watched:
            total = Total(kind, length, where, watched, (watched.steps, self.passes))
            self.totals[scheduler] = total
            weakref.finalize(scheduler, safely, Check.SCHEDULE, self.end, total)

    def end(self, total: Total) -> None:
        """Checks a dropped schedule, whose training is over."""
        steps = max(1, total.optimizer.steps - total.before[0])
        accumulation = max(1, round((self.passes - total.before[1]) / steps))
        about = steps * total.ranks, accumulation, data_parallel.world()
        report(schedule.too_long(total.kind, total.steps, *about), where=total.where)

    def wrapped(self, scheduler: Any, ranks: int) -> None:
        """Records accelerate's wrapper of a schedule, which steps it so many times at once."""
        self.places.pop(scheduler, None)
        if total := self.totals.get(scheduler):
            total.ranks = ranks

    def of_trainer(self, scheduler: Any, steps: int | None) -> None:
        """Records a Trainer's schedule and its planned steps; None if the Trainer created it."""
        total = self.totals.get(scheduler)
        if total is None:
            return
        finding = schedule.unfit(total.kind, total.steps, steps) if steps else None
        report(finding, where=total.where)
        if finding or not steps:
            total.steps = 0  # nothing is left to be compared

    def stepping(self, optimizer: Any, steps: int) -> None:
        """Checks schedules before an optimizer's step.

        Args:
            optimizer: the stepping optimizer.
            steps: its previous steps.
        """
        self.stepped.add(optimizer)
        self.clipped.used(optimizer)
        if steps < MANY:
            self._used |= dict.fromkeys(map(id, parameters_of(optimizer)), self.passes)
        rates = [group.get("lr", 1) for group in optimizer.param_groups]
        is_still = not any(hasattr(rate, "item") or rate != 0 for rate in rates)
        self._still[optimizer] = self._still.get(optimizer, 0) + 1 if is_still else 0
        if self._still[optimizer] == steps + 1 == MANY:
            seen = {"optimizer": type(optimizer).__name__, "steps": count_of(steps + 1, "step")}
            where = self.optimizers[optimizer].where
            report(schedule.ZERO.found(steps + 1, **seen), where=where)
        schedulers = [scheduler for scheduler in self.places if _is_of(scheduler, optimizer)]
        if optimizer in self._continued:
            self._look_for_begin(optimizer, schedulers)
        self._look_for_resumed(optimizer, steps)
        if not is_still:
            self._moved.add(optimizer)
        elif optimizer in self._moved and self._still[optimizer] == schedule.STILL:
            found = schedule.STOPPED.found(steps + 1, optimizer=type(optimizer).__name__)
            places = [*(self.places[each] for each in schedulers), self.optimizers[optimizer].where]
            if not any(_is_of(scheduler, optimizer) for scheduler in self.totals):
                report(found, where=places[0])
        for scheduler in schedulers:
            if steps == FORESEEN:
                self._foresee(scheduler, steps)
            if steps == schedule.WATCHED:
                done = int(scheduler.last_epoch) - self._begun.get(scheduler, 0)
                about = type(scheduler).__name__, _part_left(optimizer), done, steps
                report(schedule.decays_at_once(*about), where=self.places[scheduler])
            self._compare(scheduler, is_still=is_still, is_begin=steps < MANY)
        if steps == schedule.STEPS and not schedulers:
            self._look_for_others(steps)

    def has_used(self, parameters: Sequence[Any]) -> bool:
        """Whether a step has used these parameters' gradients, without a backward pass since."""
        return all(0 < self.passes == self._used.get(id(param)) for param in parameters)

    def loaded(self, optimizer: Any) -> None:
        """Drops the totals of an optimizer that continues with an earlier training's states."""
        if not optimizer.state:
            return
        self._continued.add(optimizer)
        for scheduler, total in list(self.totals.items()):
            if _is_of(scheduler, optimizer):
                total.steps = 0

    def _look_for_begin(self, optimizer: Any, schedulers: Sequence[Any]) -> None:
        """Reports schedules that start over at the first step after a load."""
        self._continued.discard(optimizer)
        if schedulers and all(int(scheduler.last_epoch) < 1 for scheduler in schedulers):
            last = schedulers[-1]
            report(resumed.rate_begins_anew(type(last).__name__), where=self.places[last])

    def _look_for_resumed(self, optimizer: Any, steps: int) -> None:
        """Drops totals of schedules that began before this process or step more often."""
        for scheduler, total in list(self.totals.items()):
            made = steps - total.before[0] + SLACK
            if _is_of(scheduler, optimizer) and scheduler.last_epoch > made * total.ranks:
                total.steps = 0

    def _look_for_others(self, steps: int) -> None:
        """Reports a stepped schedule whose optimizer wasn't stepped."""
        for scheduler, where in list(self.places.items()):
            other = scheduler.optimizer
            is_idle = other in self.optimizers and other not in self.stepped
            if is_idle and scheduler.last_epoch - self._begun.get(scheduler, 0) >= steps - 1:
                name = type(scheduler).__name__
                report(schedule.OF_NOBODY.found(steps, scheduler=name, steps=steps), where=where)

    def _foresee(self, scheduler: Any, steps: int) -> None:
        """Compares a schedule with the epochs that the script plans, before the third step."""
        total = self.totals.get(scheduler)
        if total is None or not total.steps or total.before[0] or not self.batches:
            return
        accumulation, rest = divmod(self.passes - total.before[1], steps + 1)
        made = int(scheduler.last_epoch) - self._begun[scheduler]
        if rest or not accumulation or abs(steps * total.ranks - made) > total.ranks:
            return  # it is stepped otherwise than its optimizer
        an_epoch = -(-self.batches // accumulation) * total.ranks
        lengths = [an_epoch * epochs for epochs in planned(EPOCHS) if epochs > 0]
        if any(schedule.is_near(total.steps, length) for length in lengths):
            return
        about = accumulation, data_parallel.world()
        found = (
            schedule.too_long(total.kind, total.steps, length, *about, is_over=False)
            for length in lengths
        )
        if finding := next(filter(None, found), None):
            report(finding, where=total.where, step=FORESEEN + 1)
            total.steps = 0  # nothing is left to be compared

    def _compare(self, scheduler: Any, *, is_still: bool, is_begin: bool) -> None:
        """Compares a schedule's steps with those of its optimizer."""
        where, name = self.places[scheduler], type(scheduler).__name__
        length, half, done = length_of(scheduler), half_period(scheduler), int(scheduler.last_epoch)
        if end := half or (length if is_still else None):
            report(schedule.over(name, end, done, repeats=bool(half)), where=where)
        if is_begin:
            seen = self._seen.setdefault(scheduler, [])
            seen.append((int(scheduler.last_epoch), self.passes))
            last = seen[-schedule.STEPS - 1 :]
            between = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(last)]
            counts, passes = [one for one, _ in between], [other for _, other in between]
            by_engine = any(
                getattr(engine, "lr_scheduler", None) is scheduler
                for engine in data_parallel.others
            )
            finding = schedule.too_often(name, counts, passes, by_engine=by_engine)
            report(finding, where=where)


def _is_of(scheduler: Any, optimizer: Any) -> bool:
    """Whether a schedule changes an optimizer's rates, which its wrappers share."""
    stepped: Any = getattr(scheduler, "optimizer", None)
    return stepped is optimizer or getattr(stepped, "param_groups", None) is optimizer.param_groups


def _part_left(optimizer: Any) -> float:
    """The highest of an optimizer's rates, as a part of the first one; 1 if it isn't known."""
    rates = [(group.get("lr"), group.get("initial_lr")) for group in optimizer.param_groups]
    numbers = [rate / first for rate, first in rates if isinstance(rate, float) and first]
    return max(numbers, default=1.0)


schedules = Schedules()


def install(module: ModuleType) -> None:
    """Wraps every schedule."""

    def made(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
        schedules.places[instance] = user_place()
        wrapped(*args, **kwargs)
        safely(Check.SCHEDULE, schedules.made, instance)

    def created(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        steps = args[0] if args else kwargs.get("num_training_steps")
        before = instance.lr_scheduler
        result = wrapped(*args, **kwargs)
        if is_on(Check.SCHEDULE):
            steps = None if before is None else steps
            safely(Check.SCHEDULE, schedules.of_trainer, instance.lr_scheduler, steps)
        return result

    if module.__name__ == TRAINER:
        wrapt.wrap_function_wrapper(module, "Trainer.create_scheduler", created)
    else:
        wrapt.wrap_function_wrapper(module, "LRScheduler.__init__", made)
