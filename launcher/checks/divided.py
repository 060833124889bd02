"""Checks by what a loop divides its loss: the passes of a step, the ranks, and the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.quantities import count_of
from .finding import Check, Finding

STEPS = 3
"""Steps to inspect."""
RATIO = 2.0
"""Least ratio of two tokens' weights that is much."""
SAME = 1e-3
"""Relative difference of weights that may be due to rounding."""
APART = 0.05
"""Relative difference that isn't."""


def summed(counts: Sequence[int]) -> Finding | None:
    """Reports accumulated means.

    Args:
        counts: backward passes of a mean from one line, per first step.
    """
    if len(counts) < STEPS or len({*counts}) > 1 or counts[0] < 2:
        return None
    return Finding(
        Check.DIVIDED,
        sentence=f"each step adds up the gradients of {counts[0]} backward passes, each of a mean "
        f"that isn't divided: they are {counts[0]} times those of one batch",
        advice="Divide the loss by the number of passes, unless the rate is chosen for their sum",
        step=STEPS,
    )


def cleared(counts: Sequence[tuple[int, int]]) -> Finding | None:
    """Reports gradients cleared before each pass of an accumulation.

    Args:
        counts: per first step, backward passes of one line, and how many of them found earlier
            gradients cleared.
    """
    if len(counts) < STEPS or len({*counts}) > 1 or not counts[0][0] - 1 == counts[0][1] > 0:
        return None
    passes, lost = counts[0]
    return Finding(
        Check.GRADIENTS,
        sentence=f"each step gets the gradients of only the last of {passes} backward passes: "
        f"those of {count_of(lost, 'pass')} are cleared before they are used",
        advice="Call zero_grad() once after each step, not before each pass (nor in accelerate's "
        "accumulate() before backward())",
        step=STEPS,
    )


def clipped_early() -> Finding:
    """Reports gradients that are clipped before a step's last backward pass."""
    return Finding(
        Check.GRADIENTS,
        sentence="gradients are clipped before the step's last backward pass: another pass adds to "
        "the clipped ones, so that batches count differently, and the sum isn't limited",
        advice="Clip once a step, after its last backward pass (with accelerate: if "
        "accelerator.sync_gradients)",
        step=1,
    )


def counted_twice(passes: Sequence[int], accumulation: int) -> Finding | None:
    """Reports a loop that accumulates for DeepSpeed's engine, which accumulates itself.

    Args:
        passes: the engine's backward passes before each of its first calls of `step`.
        accumulation: the calls of `step` that make an optimizer step.
    """
    if len(passes) < STEPS or {*passes} != {accumulation} or accumulation < 2:
        return None
    return Finding(
        Check.DIVIDED,
        sentence=f"engine.step() is called once for {count_of(accumulation, 'backward pass')}, and "
        f"the engine makes a step at every {accumulation} calls: weights change every "
        f"{count_of(accumulation**2, 'pass')}",
        advice="Call engine.step() after each backward pass: the engine counts them",
        step=1,
    )


def undivided(function: str, factor: int, *, is_passed: bool = False) -> Finding:
    """Reports a loss that a Trainer assumes to be divided by the number of items.

    Args:
        function: the qualified name of the function that computes it.
        factor: how many times the gradients are those of its mean.
        is_passed: it is the Trainer's `compute_loss_func`, which always counts as divided.
    """
    return Finding(
        Check.DIVIDED,
        sentence=f"{function} ignores num_items_in_batch, by which the Trainer takes its loss for "
        f"divided: gradients are {factor} times those of its mean",
        advice="Divide the sum of the loss by num_items_in_batch, if it is given"
        if is_passed
        else "Set model_accepts_loss_kwargs = False at the end of the Trainer's __init__, or "
        "model.accepts_loss_kwargs = False before it is made; or divide by the number yourself "
        "(safe-launch explain compute-loss-without-item-count)",
        step=1,
    )


def left_over(passes: int, left: int) -> Finding:
    """Reports a step that includes the passes left over from an epoch.

    Args:
        passes: backward passes whose gradients the step uses.
        left: those of the epoch before.
    """
    return Finding(
        Check.GRADIENTS,
        sentence=f"the step adds up the gradients of {passes} backward passes, {left} of them left "
        f"over by the epoch before: most steps use {passes - left}",
        advice="Make a step after an epoch's last batch too, or clear the gradients there",
    )


def summed_labels() -> Finding:
    """Reports a sum over all labels as the loss."""
    return Finding(
        Check.DIVIDED,
        sentence="the loss is the sum over all labels, and nothing divides it: gradients grow with "
        "the number of labels, and clipping leaves little but their direction",
        advice="Divide it by the number of labels that count, over all ranks and passes of a step",
        step=1,
    )


def by_ranks(
    ranks: int, *, is_multiplied: bool, averaging: str = "DistributedDataParallel"
) -> Finding:
    """Reports a mean that is multiplied or divided by the number of ranks.

    Args:
        ranks: their number.
        is_multiplied: whether it isn't divided.
        averaging: what averages the gradients.
    """
    how, size = ("times", "large") if is_multiplied else ("divided by", "small")
    return Finding(
        Check.DIVIDED,
        sentence=f"the loss is a mean {how} the number of ranks: {averaging} averages "
        f"gradients over the ranks, and they are {ranks} times too {size}",
        advice="Don't multiply it, unless it is divided by a number of all ranks' samples"
        if is_multiplied
        else "Don't divide it: backward() averages over the ranks",
        step=1,
    )


ROUNDING = 1e-4
"""Relative difference of sums that are equal; half precision rounds more coarsely."""


def summed_again(
    before: Sequence[float], after: Sequence[float], used: Sequence[float], ranks: int
) -> Finding | None:
    """Reports gradients that the ranks sum although they were averaged.

    Args:
        before: elements of a gradient before the sum.
        after: the same after it.
        used: the same when the optimizer gets them.
        ranks: number of ranks.
    """
    times = [ranks * value for value in before]
    if not any(before) or ranks < 2 or not (_are_equal(times, after) and _are_equal(after, used)):
        return None
    return Finding(
        Check.GRADIENTS,
        sentence="gradients are summed over the ranks by all_reduce after "
        f"DistributedDataParallel has averaged them: they are {ranks} times too large",
        advice="Leave the all_reduce out: backward() has averaged them",
        step=1,
    )


def _are_equal(some: Sequence[float], others: Sequence[float]) -> bool:
    pairs = zip(some, others, strict=True)
    return all(abs(one - other) <= ROUNDING * abs(one) for one, other in pairs)


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
