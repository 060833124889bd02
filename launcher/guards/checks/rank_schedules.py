"""Detects a schedule that accelerate steps once per rank, so that it moves far too fast.

accelerate expects a schedule as long as its undivided loader: per optimizer step, it steps the
schedule as many times as there are ranks. One that is stepped once an epoch doesn't expect that.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import wrapt

from ...checks.finding import Check, Finding
from ...checks.schedule import BEYOND
from ...core.errors import EXPLAINED
from ...core.quantities import count_of
from ...evidence.observations import observations
from .. import data_parallel
from ..callers import user_place
from .reporting import is_on, report_here
from .schedule_lengths import EPOCHS, LIMIT, STEPS, half_period, length_of, planned, turns_of
from .schedules import schedules

HOOKED = ("accelerate.scheduler",)


@dataclass(slots=True)
class _Schedule:
    """A schedule that accelerate steps once per rank.

    Attributes:
        length: steps until its final rate; None if it has none.
        at: the user's line that passed it to accelerate.
        repeats: whether it then begins again.
        steps: optimizer steps since.
        made: its optimizer's steps when it was last stepped.
        apart: those between its last two steps.
        turns: steps at which the rate changes, if it has no end.
    """

    length: int | None
    at: str
    repeats: bool
    steps: int = 0
    made: int = 0
    apart: int = 0
    turns: tuple[int, ...] = ()


_schedules: weakref.WeakKeyDictionary[Any, _Schedule] = weakref.WeakKeyDictionary()


def install(module: ModuleType) -> None:
    """Wraps accelerate's scheduler."""
    wrapt.wrap_function_wrapper(module, "AcceleratedScheduler.__init__", _made)
    wrapt.wrap_function_wrapper(module, "AcceleratedScheduler.step", _stepped)


def _made(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
    wrapped(*args, **kwargs)
    with suppress(Exception):  # a schedule that can't be read isn't judged
        kind = instance.scheduler
        is_by_rank = instance.step_with_optimizer and not instance.split_batches
        ranks = data_parallel.world() if is_by_rank else 1
        schedules.wrapped(kind, ranks)
        if ranks > 1 and is_on(Check.SCHEDULE):
            half, made = half_period(kind), _steps_of(instance)
            length, turns = half or length_of(kind), turns_of(kind)
            about = _Schedule(length, user_place(), bool(half), made=made, turns=turns)
            _schedules[instance] = about


def _stepped(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    result = wrapped(*args, **kwargs)
    schedule = _schedules.get(instance)
    if schedule is not None:
        with suppress(Exception):
            ranks, state = data_parallel.world(), instance.gradient_state
            is_skipped = any(optimizer.step_was_skipped for optimizer in instance.optimizers)
            is_step = state.sync_gradients and not is_skipped
            schedule.steps += is_step
            finding = _seldom(schedule, _steps_of(instance), ranks) or _over(schedule, ranks)
            if schedule.steps == 1 and is_step:
                finding = finding or _foreseen(schedule, state, ranks)
                finding = finding or _turning(schedule, state, ranks)
            if finding:
                del _schedules[instance]
                report_here(finding)
    return result


def _steps_of(instance: Any) -> int:
    """The steps of a schedule's optimizer; 0 if they aren't counted."""
    optimizer = getattr(instance.optimizers[0], "optimizer", None)
    watch = None if optimizer is None else schedules.optimizers.get(optimizer)
    return 0 if watch is None else int(watch.steps)


def _seldom(schedule: _Schedule, made: int, ranks: int) -> Finding | None:
    """Reports a schedule stepped twice in a row after several optimizer steps, as for epochs.

    Not one with an end, which may be as many times as long as there are ranks (`_over`).
    """
    before_that, schedule.apart = schedule.apart, made - schedule.made
    schedule.made = made
    if min(before_that, schedule.apart) < 2 or schedule.length is not None:
        return None
    return Finding(
        Check.SCHEDULE,
        certain=False,
        sentence=f"the schedule moves {count_of(ranks, 'step')} at once: accelerate "
        f"({schedule.at}) steps it once a rank, though it is stepped only once in "
        f"{count_of(schedule.apart, 'optimizer step')}, as for an epoch",
        advice="Don't pass it to prepare(), or make the Accelerator with "
        "step_scheduler_with_optimizer=False",
        step=observations.step(),
    )


def _over(schedule: _Schedule, ranks: int) -> Finding | None:
    """Reports a schedule that has reached its end long ago."""
    if schedule.length is None or schedule.steps * ranks <= BEYOND * schedule.length + ranks:
        return None
    return _too_fast(schedule, schedule.length, ranks, "was", certain=not schedule.repeats)


def _foreseen(schedule: _Schedule, state: Any, ranks: int) -> Finding | None:
    """Reports a schedule of all epochs' optimizer steps, or all planned steps, in the first one.

    The script names the number, and the loader has this rank's share of the batches.
    """
    length, limits = schedule.length, planned(LIMIT)
    if length is None or (schedule.repeats and length not in limits):
        return None
    epochs, an_epoch = planned(EPOCHS), _epoch_in(state)
    is_planned = length / an_epoch in epochs or length in limits
    if not is_planned or length / an_epoch / ranks in epochs or length / ranks in planned(STEPS):
        return None
    return _too_fast(schedule, length, ranks, "will be", certain=False)


def _turning(schedule: _Schedule, state: Any, ranks: int) -> Finding | None:
    """Reports a schedule that changes the rate after epochs of this rank's steps."""
    an_epoch = _epoch_in(state)
    turns = schedule.turns
    if not turns or any(turn % an_epoch for turn in turns):
        return None
    early = next((turn for turn in turns if turn % (an_epoch * ranks)), None)
    if early is None or an_epoch < 2:
        return None
    return Finding(
        Check.SCHEDULE,
        certain=False,
        sentence=f"a schedule that changes the rate after {count_of(early, 'step')} (epochs of "
        f"{an_epoch:,}) will do so after {count_of(-(-early // ranks), 'optimizer step')}: "
        f"accelerate ({schedule.at}) steps it once a rank, {ranks} times for each step()",
        advice=f"Count {ranks} times as many steps: multiply by accelerator.num_processes "
        f"({EXPLAINED})",
        step=observations.step(),
    )


def _epoch_in(state: Any) -> int:
    """Optimizer steps of an epoch of this rank's batches."""
    return -(-len(state.active_dataloader) // int(state.num_steps))


def _too_fast(
    schedule: _Schedule, length: int, ranks: int, tense: str, *, certain: bool
) -> Finding:
    return Finding(
        Check.SCHEDULE,
        certain=certain,
        sentence=f"a schedule of {count_of(length, 'step')} {tense} over after "
        f"{count_of(-(-length // ranks), 'optimizer step')}: accelerate "
        f"({schedule.at}) steps it once a rank, {ranks} times for each step()",
        advice=f"Make it {ranks} times as long: num_training_steps * "
        f"accelerator.num_processes ({EXPLAINED})",
        step=observations.step(),
    )
