"""Checks the scale, shape and values of losses."""

from __future__ import annotations

from collections.abc import Sequence

from .finding import Check, Finding

STEPS = 10
"""First steps whose losses are inspected."""
LEAST = 1e-6
"""Minimum of a loss that is inspected: one of advantages is zero in each first step."""


def still(values: Sequence[float]) -> Finding | None:
    """Reports a loss that is the same in all first steps.

    Args:
        values: of a backward pass of each step.
    """
    if len(values) < STEPS or len({*values}) > 1 or not abs(values[0]) > LEAST:
        return None
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"the loss is the same in each of the first {STEPS} steps, {values[0]:.6g}, "
        "whatever the batch",
        advice="Look at what it is computed from: two outputs that are always equal, such as those "
        "of a model and of a reference that follows it, or nothing that depends on the model",
        step=STEPS,
    )


def broadcast(shapes: tuple[tuple[int, ...], tuple[int, ...]] | None) -> Finding | None:
    """Reports a loss that compares each output with every target.

    Args:
        shapes: of the output, and of its differences; None if they are alike.
    """
    if shapes is None:
        return None
    output, made = (str(list(shape)) for shape in shapes)
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"the loss compares each output with the target of every sample: an output of "
        f"shape {output} and its target are broadcast to {made}",
        advice="Give both the same shape, e.g. by squeeze(-1) or unsqueeze(-1)",
        step=1,
    )


def summed() -> Finding:
    """Reports a sum over all labels as the loss."""
    return Finding(
        Check.DIVIDED,
        certain=False,
        sentence="the loss is the sum over all labels, and nothing divides it: gradients grow with "
        "the number of labels, and clipping leaves little but their direction",
        advice="Divide it by the number of labels that count, over all ranks and passes of a step",
        step=1,
    )


def multiplied(ranks: int) -> Finding:
    """Reports a mean that is multiplied by the number of ranks before its backward pass."""
    return Finding(
        Check.DIVIDED,
        certain=False,
        sentence=f"the loss is a mean times the number of ranks: DistributedDataParallel averages "
        f"gradients over the ranks, and they are {ranks} times too large",
        advice="Don't multiply it, unless it is divided by a number of all ranks' samples",
        step=1,
    )
