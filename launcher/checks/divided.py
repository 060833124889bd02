"""Whether a training loop adds up the passes of a step, and divides its loss by them."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.count_of import count_of
from .finding import Check, Finding

STEPS = 3
"""Steps that are looked at."""


def summed(counts: Sequence[int], where: str) -> Finding | None:
    """Means that are added up.

    Args:
        counts: backward passes of a mean in each of the first steps, all of one line.
        where: that line.
    """
    if len(counts) < STEPS or len({*counts}) > 1 or counts[0] < 2:
        return None
    return Finding(
        Check.DIVIDED,
        certain=False,
        sentence=f"each step adds up the gradients of {counts[0]} backward passes, each of a mean "
        f"that nothing divides: they are {counts[0]} times those of one batch",
        advice="Divide the loss by the number of passes, unless the rate is chosen for their sum",
        step=STEPS,
        where=where,
    )


def cleared(counts: Sequence[tuple[int, int]], where: str) -> Finding | None:
    """Gradients that are cleared before each of the passes that a step is to add up.

    Args:
        counts: backward passes of one line in each of the first steps, and those of them before
            which nothing was left of the ones before.
        where: that line.
    """
    if len(counts) < STEPS or len({*counts}) > 1 or not counts[0][0] - 1 == counts[0][1] > 0:
        return None
    passes, lost = counts[0]
    return Finding(
        Check.GRADIENTS,
        certain=False,
        sentence=f"each step gets the gradients of the last of {passes} backward passes alone: "
        f"those of {count_of(lost, 'pass')} are cleared before they are used",
        advice="Call zero_grad() once after each step, not before each pass (nor in accelerate's "
        "accumulate() before backward())",
        step=STEPS,
        where=where,
    )
