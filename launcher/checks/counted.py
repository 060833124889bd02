"""Checks how a mean over tokens weighs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.quantities import count_of
from .finding import Check, Finding

STEPS = 3
"""Steps to look at."""
RATIO = 2.0
"""Least ratio of two tokens' weights that is much."""
SAME = 1e-3
"""Relative difference of weights that may be due to rounding."""
APART = 0.05
"""Relative difference that isn't."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over a micro batch's tokens.

    Attributes:
        counted: tokens that count.
        tokens: all of them.
        weight: the factor of the mean in what is trained, its gradient.
    """

    counted: float
    tokens: float
    weight: float


def unlike_weights(steps: Sequence[Sequence[Mean]]) -> Finding | None:
    """Reports steps whose micro batches have tokens of unlike weights.

    Args:
        steps: the means of each step's micro batches.
    """
    ratios = []
    for means in steps:
        weights = [mean.weight / mean.counted for mean in means if mean.counted and mean.weight]
        has_ignored = any(mean.counted < mean.tokens for mean in means)
        if len(means) < 2 or len(weights) < len(means) or min(weights) <= 0 or not has_ignored:
            return None
        ratios.append(max(weights) / min(weights))
    if len(ratios) < STEPS or min(ratios) <= RATIO:
        return None
    first = sorted(int(mean.counted) for mean in steps[0])
    return Finding(
        Check.DIVIDED,
        certain=False,
        sentence="the micro batches of a step weigh their tokens unlike: each loss is a mean over "
        f"its labels, of which those of the first step have {first[0]:,} to {first[-1]:,}, so that "
        f"a token counts up to {max(ratios):.1f} times as much as another",
        advice='Sum the losses (reduction="sum"), and divide by the number of labels in all of a '
        "step's micro batches",
        step=STEPS,
    )


@dataclass(frozen=True, slots=True)
class Masked:
    """Losses of single tokens, and what they count in what is trained.

    Attributes:
        elements: losses.
        counted: those of labels that aren't ignored and that have a gradient.
        labelled: those of labels that aren't ignored.
        most: the largest gradient of a loss.
        least: the smallest that isn't zero.
    """

    elements: float
    counted: float
    labelled: float
    most: float
    least: float


def divided_by_all(batches: Sequence[Masked]) -> Finding | None:
    """Reports losses of which some are left out, and that are divided by the number of all.

    Args:
        batches: those of several steps.
    """
    if len(batches) < STEPS or not all(0 < one.counted < one.elements for one in batches):
        return None
    if any(one.most <= 0 or one.most - one.least > SAME * one.most for one in batches):
        return None
    by_all = _spread([one.most * one.elements for one in batches])
    by_counted = _spread([one.most * one.counted for one in batches])
    is_ignoring = all(one.labelled < one.elements for one in batches)
    varies = _spread([one.elements for one in batches]) > SAME
    if by_all > SAME or by_counted < APART or not (is_ignoring or varies):
        return None
    first = batches[0]
    return Finding(
        Check.DIVIDED,
        certain=False,
        sentence="a mean over tokens counts those that are left out: of the first batch's "
        f"{count_of(int(first.elements), 'token')} {int(first.counted):,} count, and their sum is "
        "divided by all, so that batches with more padding are trained less",
        advice="Divide the sum by the number of tokens that count, such as mask.sum()",
        step=STEPS,
    )


def _spread(values: Sequence[float]) -> float:
    """The relative difference of the largest and the smallest."""
    return (max(values) - min(values)) / max(values)
