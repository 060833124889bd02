"""Checks that a learning rate schedule steps with its optimizer, and is as long as the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.quantities import count_of
from .finding import Check, Fault, Finding

STEPS = 5
"""Optimizer steps over which a schedule's steps must be consistent."""
WARMUPS, DEFAULT = ("WarmupLR", "WarmupDecayLR"), 0.001
"""DeepSpeed schedules with a maximum rate, and its default (deepspeed/runtime/lr_schedules.py)."""
DECAYS = ("ExponentialLR", "MultiplicativeLR")
"""Schedules without an end that multiply the rate whenever they are stepped."""
WATCHED = 9
"""Optimizer steps after which to judge them."""
SOON, GONE = 100, 0.01
"""Steps in which no training by step loses so much of its rate, and the part that is left."""
STILL = 5
"""Inspections in a row with rate 0."""
BEYOND = 1.5
"""Ratio of training to schedule length to report: last batches of epochs and accumulations make
schedules slightly too short."""
NEAR = 0.03
"""Relative tolerance between a total and a multiple of the steps made."""
LEAST = 8
"""Minimum optimizer steps for such a multiple not to be chance."""


def too_often(
    scheduler: str,
    counts: Sequence[int],
    passes: Sequence[int],
    *,
    by_engine: bool = False,
) -> Finding | None:
    """Reports a schedule stepped at every backward pass, or by both loop and engine.

    Args:
        scheduler: its class.
        counts: its steps between consecutive optimizer steps.
        passes: backward passes between the same steps.
        by_engine: whether DeepSpeed's engine steps it.
    """
    if len(counts) < STEPS or counts[0] < 2 or len({*counts}) > 1:
        return None
    if not by_engine and [*counts] != [*passes]:
        return None
    who = "by DeepSpeed's engine and by the loop" if by_engine else "once a micro batch"
    return Finding(
        Check.SCHEDULE,
        certain=True,
        sentence=f"{scheduler} was stepped {counts[0]} times for every step of its optimizer, "
        f"{who}: the rate changes as much faster",
        advice="Leave it to engine.step()" if by_engine else "Step it where the optimizer steps",
        step=len(counts) + 1,
    )


STOPPED = Fault(
    "the rate of {optimizer} has fallen to 0, but the training continues",
    "Make the schedule as long as the training, or end the training with it",
    check=Check.SCHEDULE,
)
"""A rate has fallen to zero, and has been so in `STILL` inspections."""


def decays_at_once(scheduler: str, part: float, done: int, steps: int) -> Finding | None:
    """Reports a decay meant for epochs that is made at every step.

    Args:
        scheduler: its class.
        part: the present rate, as a part of the first one.
        done: the schedule's steps.
        steps: the optimizer's steps before this one.
    """
    if scheduler not in DECAYS or steps < WATCHED or done < steps or not 0 < part < 1:
        return None
    factor = part ** (1 / done)
    if factor**SOON > GONE:
        return None
    return Finding(
        Check.SCHEDULE,
        certain=False,
        sentence=f"{scheduler} lowers the rate by {100 * (1 - factor):.0f} % at every step: "
        f"{factor**SOON:.0e} of it will be left after {SOON}",
        advice="If it is to decay once an epoch, step it once an epoch; DeepSpeed's engine and "
        "accelerate step at every step the schedule that they are given",
        step=steps + 1,
    )


OF_NOBODY = Fault(
    "{scheduler} changes the rate of an optimizer that has made no step, and not of the one that "
    "has made {steps}: its rate stays as it is",
    "Make the schedule with the optimizer that is stepped",
    certain=True,
    check=Check.SCHEDULE,
)
"""A schedule's optimizer makes no step, beside an optimizer without a schedule."""
ZERO = Fault(
    "the rate of {optimizer} has been 0 in all {steps}: nothing is trained",
    "Look at the schedule: it isn't stepped, or its factor is rounded to 0",
    certain=True,
    check=Check.SCHEDULE,
)
"""A rate has always been zero."""


def overruled(scheduler: str, parameters: Mapping[str, object], rate: object) -> Finding | None:
    """Reports a DeepSpeed schedule that warms up to its default rate, not the optimizer's.

    Args:
        scheduler: its type in the configuration.
        parameters: its configured parameters.
        rate: the optimizer's configured rate, if any.
    """
    is_left = scheduler in WARMUPS and "warmup_max_lr" not in parameters
    if not is_left or not isinstance(rate, int | float) or rate == DEFAULT:
        return None
    return Finding(
        Check.SCHEDULE,
        certain=True,
        sentence=f"the rate that DeepSpeed's configuration gives the optimizer ({rate:g}) is "
        f"overruled: {scheduler} has no warmup_max_lr, and warms up to its default of {DEFAULT:g}",
        advice="Give the scheduler warmup_max_lr as well",
        step=1,
    )


def never_warm(scheduler: str, warmup: int, total: int) -> Finding | None:
    """Reports a warmup longer than the schedule.

    Args:
        scheduler: its class.
        warmup: number of warmup steps.
        total: all its steps.
    """
    if not 0 < total < warmup:
        return None
    return Finding(
        Check.SCHEDULE,
        certain=True,
        sentence=f"{scheduler} warms up for {count_of(warmup, 'step')}, and is made for "
        f"{total:,} in all: the rate reaches at most {total / warmup:.2g} of the requested one",
        advice="Make the warmup a small part of the training, e.g. by warmup_ratio",
        step=1,
    )


OVER = Fault(
    "{scheduler} was over after {length}, and the training goes on with a rate of 0",
    "Make it as long as the training: batches of an epoch, times epochs, divided by the "
    "accumulation",
    certain=True,
    check=Check.SCHEDULE,
)
RISING_AGAIN = Fault(
    "{scheduler} was at its end after {length} (T_max), and raises the rate again since",
    "Make T_max the number of times that it is stepped in the whole training, or use "
    "CosineAnnealingWarmRestarts",
    check=Check.SCHEDULE,
)


def over(scheduler: str, length: int, steps: int, *, repeats: bool = False) -> Finding | None:
    """Reports a schedule whose end is long ago.

    Args:
        scheduler: its class.
        length: steps until its final rate, 0, or until a cosine's minimum.
        steps: those that it has made.
        repeats: whether the rate rises again behind it.
    """
    if steps <= BEYOND * length + 1:
        return None
    fault = RISING_AGAIN if repeats else OVER
    return fault.found(steps, scheduler=scheduler, length=count_of(length, "step"))


def unfit(scheduler: str, total: int, steps: int) -> Finding | None:
    """Reports a schedule passed to a Trainer whose length differs from the training's.

    Args:
        scheduler: its class.
        total: the steps after which its rate has reached its end.
        steps: the Trainer's planned steps.
    """
    is_short = steps > BEYOND * total + 1
    if not is_short and total <= BEYOND * steps + 1:
        return None
    effect = (
        f"the rate is at its end after {total / steps:.0%} of the training"
        if is_short
        else f"the training ends after {steps / total:.0%} of it, with a rate far above its end"
    )
    return Finding(
        Check.SCHEDULE,
        certain=False,
        sentence=f"{scheduler} is made for {count_of(total, 'step')}, and the Trainer makes "
        f"{steps:,}: {effect}",
        advice="Count optimizer steps: batches of one rank, divided by the accumulation, or leave "
        "the schedule to the Trainer",
        step=1,
    )


def too_long(
    scheduler: str, total: int, steps: int, accumulation: int, ranks: int, *, is_over: bool = True
) -> Finding | None:
    """Reports a schedule far from its end, as its total counts batches, or all ranks' steps.

    Judges only such multiples, as a training may end early.

    Args:
        scheduler: its class.
        total: the steps after which its rate has reached its end.
        steps: its steps when the training ends.
        accumulation: backward passes per optimizer step.
        ranks: of the run.
        is_over: whether the training has ended; else its end is foreseen.
    """
    if steps < LEAST:
        return None
    made, ended = ("that it has made", "ended") if is_over else ("planned", "will end")
    reasons = {
        ranks * accumulation: "batches of all ranks",
        ranks: "the steps of all ranks",
        accumulation: "batches and not steps of the optimizer",
    }
    for factor, why in reasons.items():
        if factor > 1 and is_near(total, factor * steps):
            return Finding(
                Check.SCHEDULE,
                certain=False,
                sentence=f"{scheduler} is made for {count_of(total, 'step')}, {factor} times the "
                f"{steps:,} {made}: its total counts {why}, and the training {ended} with "
                "a rate far above its end",
                advice=f"Divide the total, and a warmup, by {factor}",
                step=steps if is_over else None,
            )
    return None


def is_near(total: int, steps: int) -> bool:
    """Whether a schedule's total is that of a training, but for an epoch's last batches."""
    return abs(total / steps - 1) <= NEAR
