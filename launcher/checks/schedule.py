"""Whether the learning rate's schedule steps with the optimizer."""

from __future__ import annotations

from collections.abc import Sequence

from .finding import Check, Finding

STEPS = 5
"""Steps of an optimizer over which its schedule must have stepped alike."""


def too_often(
    scheduler: str,
    counts: Sequence[int],
    passes: Sequence[int],
    where: str,
    *,
    by_engine: bool = False,
) -> Finding | None:
    """A schedule that steps with every backward pass, or that loop and engine both step.

    Args:
        scheduler: its class.
        counts: its steps between each two steps of its optimizer.
        passes: backward passes between the same.
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
