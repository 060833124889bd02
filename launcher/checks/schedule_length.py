"""Checks that a learning rate schedule is as long as the training."""

from __future__ import annotations

from ..core.quantities import count_of
from .finding import Check, Finding

BEYOND = 1.5
"""Ratio of training to schedule length to report: last batches of epochs and accumulations make
schedules slightly too short."""
NEAR = 0.03
"""Relative tolerance between a total and a multiple of the steps made."""
LEAST = 8
"""Minimum optimizer steps for such a multiple not to be chance."""


def never_warm(scheduler: str, warmup: int, total: int, where: str) -> Finding | None:
    """Reports a warmup longer than the schedule.

    Args:
        scheduler: its class.
        warmup: number of warmup steps.
        total: all its steps.
        where: the user's line that made it.
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
        where=where,
    )


def over(scheduler: str, length: int, steps: int, where: str) -> Finding | None:
    """Reports a schedule whose rate has been 0 for long.

    Args:
        scheduler: its class.
        length: steps until its final rate.
        steps: those that it has made.
        where: the user's line that made it.
    """
    if steps <= BEYOND * length + 1:
        return None
    return Finding(
        Check.SCHEDULE,
        certain=True,
        sentence=f"{scheduler} was over after {count_of(length, 'step')}, and the training goes on "
        "with a rate of 0",
        advice="Make it as long as the training: batches of an epoch, times epochs, divided by the "
        "accumulation",
        step=steps,
        where=where,
    )


def unfit(scheduler: str, total: int, steps: int, where: str) -> Finding | None:
    """Reports a schedule passed to a Trainer whose length differs from the training's.

    Args:
        scheduler: its class.
        total: the steps after which its rate has reached its end.
        steps: the Trainer's planned steps.
        where: the user's line that made it.
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
        where=where,
    )


def too_long(
    scheduler: str, total: int, steps: int, accumulation: int, ranks: int, where: str
) -> Finding | None:
    """Reports a schedule far from its end, as its total counts batches, or all ranks' steps.

    Judges only such multiples, as a training may end early.

    Args:
        scheduler: its class.
        total: the steps after which its rate has reached its end.
        steps: its steps when the training ends.
        accumulation: backward passes per optimizer step.
        ranks: of the run.
        where: the user's line that made it.
    """
    if steps < LEAST:
        return None
    reasons = {
        ranks * accumulation: "batches of all ranks",
        ranks: "the steps of all ranks",
        accumulation: "batches and not steps of the optimizer",
    }
    for factor, why in reasons.items():
        if factor > 1 and abs(total / (factor * steps) - 1) <= NEAR:
            return Finding(
                Check.SCHEDULE,
                certain=False,
                sentence=f"{scheduler} is made for {count_of(total, 'step')}, {factor} times the "
                f"{steps:,} that it has made: its total counts {why}, and the training ended with "
                "a rate far above its end",
                advice=f"Divide the total, and a warmup, by {factor}",
                step=steps,
                where=where,
            )
    return None


def rising_again(scheduler: str, half: int, steps: int, where: str) -> Finding | None:
    """Reports a cosine schedule that rises again after its half period.

    Args:
        scheduler: its class.
        half: its half period, T_max.
        steps: those that it has made.
        where: the user's line that made it.
    """
    if not BEYOND * half + 1 < steps:
        return None
    return Finding(
        Check.SCHEDULE,
        certain=False,
        sentence=f"{scheduler} was at its end after {count_of(half, 'step')} (T_max), and raises "
        "the rate again since",
        advice="Make T_max the number of times that it is stepped in the whole training, or use "
        "CosineAnnealingWarmRestarts",
        step=steps,
        where=where,
    )
