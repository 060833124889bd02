"""Checks that a learning rate schedule steps with its optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.quantities import count_of
from .finding import Check, Finding

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


def too_often(
    scheduler: str,
    counts: Sequence[int],
    passes: Sequence[int],
    where: str,
    *,
    by_engine: bool = False,
) -> Finding | None:
    """Reports a schedule stepped at every backward pass, or by both loop and engine.

    Args:
        scheduler: its class.
        counts: its steps between consecutive optimizer steps.
        passes: backward passes between the same steps.
        where: the user's line that steps it.
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
        where=where,
    )


def stopped(optimizer: str, looks: int, step: int, where: str) -> Finding | None:
    """Reports a rate that fell to zero while the training continues.

    Args:
        optimizer: its class.
        looks: inspections in a row with rate 0 after a positive rate.
        step: the optimizer's step.
        where: the user's line that made it.
    """
    if looks != STILL:
        return None
    return Finding(
        Check.SCHEDULE,
        certain=False,
        sentence=f"the rate of {optimizer} has fallen to 0, but the training continues",
        advice="Make the schedule as long as the training, or end the training with it",
        step=step,
        where=where,
    )


def decays_at_once(
    scheduler: str, part: float, done: int, steps: int, where: str
) -> Finding | None:
    """Reports a decay meant for epochs that is made at every step.

    Args:
        scheduler: its class.
        part: the present rate, as a part of the first one.
        done: the schedule's steps.
        steps: the optimizer's steps before this one.
        where: the user's line that made it.
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
        where=where,
    )


def of_nobody(scheduler: str, steps: int, where: str) -> Finding:
    """Reports a schedule whose optimizer makes no step, beside an optimizer without a schedule.

    Args:
        scheduler: its class.
        steps: the other optimizer's steps.
        where: the user's line that made it.
    """
    return Finding(
        Check.SCHEDULE,
        certain=True,
        sentence=f"{scheduler} changes the rate of an optimizer that has made no step, and not of "
        f"the one that has made {steps}: its rate stays as it is",
        advice="Make the schedule with the optimizer that is stepped",
        step=steps,
        where=where,
    )


def zero(optimizer: str, steps: int, where: str) -> Finding:
    """Reports a rate that has always been zero.

    Args:
        optimizer: its class.
        steps: the optimizer's steps.
        where: the user's line that made it.
    """
    return Finding(
        Check.SCHEDULE,
        certain=True,
        sentence=f"the rate of {optimizer} has been 0 in all {count_of(steps, 'step')}: nothing is "
        "trained",
        advice="Look at the schedule: it isn't stepped, or its factor is rounded to 0",
        step=steps,
        where=where,
    )


def overruled(
    scheduler: str, parameters: Mapping[str, object], rate: object, where: str
) -> Finding | None:
    """Reports a DeepSpeed schedule that warms up to its default rate, not the optimizer's.

    Args:
        scheduler: its type in the configuration.
        parameters: its configured parameters.
        rate: the optimizer's configured rate, if any.
        where: the user's line that steps the engine.
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
        where=where,
    )
