"""Checks how a script calls its schedules, and which of its numbers an optimizer uses."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from ..core.quantities import count_of
from .finding import Check, Fault, Finding
from .saved import FALLING, RISING, TURNED

CLOSED = ("LambdaLR", "OneCycleLR", "CyclicLR")
"""torch's schedules that compute the rate from its first value, whatever it is now."""
OPEN = (
    *("StepLR", "MultiStepLR", "ExponentialLR", "CosineAnnealingLR", "ConstantLR", "LinearLR"),
    *("PolynomialLR", "MultiplicativeLR"),
)
"""torch's schedules that multiply the rate as it is."""
TIMES = 3
"""Steps of two schedules in turn, to be sure of them."""
VALUES = 3
"""Metrics of a plateau to look at."""
EPOCH = 4
"""Minimum of optimizer steps between two of a schedule that is stepped once an epoch."""
METRIC = re.compile(r"\.step\(\s*(?:metrics\s*=\s*)?([A-Za-z_][\w.\[\]\"']*?)(?:\.item\(\))?\s*\)")
"""A call with a variable as its metric."""


def overwriting(kinds: Sequence[str], times: int) -> Finding | None:
    """Reports two schedules that set the same rates in turn.

    Args:
        kinds: classes of the schedules, in the order of their steps.
        times: how often both have stepped between two steps of their optimizer.
    """
    closed = [kind for kind in kinds if kind in CLOSED]
    known = all(kind in (*CLOSED, *OPEN) for kind in kinds)
    if times < TIMES or len(kinds) < 2 or not closed or not known:
        return None
    last = closed[-1]
    others = [kind for kind in kinds if kind != last] or [last]
    return Finding(
        Check.SCHEDULE,
        certain=True,
        sentence=f"schedules of one optimizer overwrite each other: {last} computes the rate from "
        f"its first value in each step, so that nothing of {others[0]} accumulates",
        advice="Join them, e.g. SequentialLR(optimizer, [warmup, decay], milestones=[steps]), and "
        "step that alone",
    )


METRIC_AS_EPOCH = Fault(
    "{kind}.step() is given a metric as its epoch, and sets the rate to that epoch's",
    "Call step() without an argument: only ReduceLROnPlateau takes a metric",
    certain=True,
    check=Check.SCHEDULE,
)
"""A schedule is given a number that isn't whole as the epoch."""


def turned(mode: str, values: Sequence[float], line: str) -> Finding | None:
    """Reports a plateau whose mode doesn't fit the metric, by its name and course.

    Args:
        mode: `min` or `max`.
        values: the metrics so far.
        line: the script's line that gives them.
    """
    match = METRIC.search(line)
    if match is None or len(values) < VALUES or min(values) < 0:
        return None
    words = {*filter(None, re.split(r"[^a-z0-9]+", match[1].lower()))}
    is_rising, is_falling = bool(words & RISING), bool(words & FALLING)
    if words & TURNED or is_rising == is_falling or is_rising != (mode == "min"):
        return None
    if (values[-1] > values[0]) != is_rising or values[-1] == values[0]:
        return None
    better = "higher" if is_rising else "lower"
    return Finding(
        Check.SCHEDULE,
        certain=False,
        sentence=f"ReduceLROnPlateau lowers the rate while its metric gets better: {match[1]} goes "
        f"from {values[0]:.4g} to {values[-1]:.4g}, by its name {better} is better, and the mode "
        f"is {mode!r}",
        advice=f"Make it with mode={'max' if is_rising else 'min'!r}",
    )


def in_epochs(kind: str, total: int, an_epoch: int, planned: Collection[int]) -> Finding | None:
    """Reports a schedule made for all steps and stepped once an epoch.

    Args:
        kind: its class.
        total: steps until its end.
        an_epoch: optimizer steps between two of the schedule's.
        planned: epochs that the script plans.
    """
    epochs = next((one for one in planned if one > 1 and one * an_epoch == total), 0)
    if an_epoch < EPOCH or not epochs:
        return None
    return Finding(
        Check.SCHEDULE,
        certain=False,
        sentence=f"{kind} is stepped once an epoch, but made for {count_of(total, 'step')}, as "
        f"many as {epochs:,} epochs have: the rate stays near the first one",
        advice=f"Step it after each optimizer step, or make it for {count_of(epochs, 'step')}",
    )
