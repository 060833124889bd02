"""Whether a training loop divides its loss by the passes that it adds up."""

from __future__ import annotations

from collections.abc import Sequence

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
