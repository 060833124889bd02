"""Checks rows of a weight whose gradients a script sets to zero."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.quantities import count_of
from .finding import Check, Finding

STEPS = 3
"""Steps to look at."""
LEAST = 4
"""Minimum of rows without a gradient, in each of them."""


def moved(name: str, steps: Sequence[Mapping[int, tuple[bool, bool]]]) -> Finding | None:
    """Reports rows in use that never have a gradient, and that each step moves all the same.

    Args:
        name: the embedding's weight.
        steps: by row in use, whether its gradient is all zero, and whether the step moved it.
    """
    if len(steps) < STEPS:
        return None
    zero = {row for step in steps for row, (is_zero, _) in step.items() if is_zero}
    others = {row for step in steps for row, (is_zero, _) in step.items() if not is_zero}
    if not zero or not others or zero & others or len(zero) < len(others):
        return None
    for step in steps:
        held = [is_moved for row, (_, is_moved) in step.items() if row in zero]
        if len(held) < LEAST or not all(held):
            return None
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"rows that are to stay are trained: {count_of(len(zero), 'row')} of {name} that "
        "the batches use have no gradient, as the script sets it to zero, but each step moves "
        "them: weight decay and momentum do so without a gradient",
        advice="Put these rows back after each step, or give the optimizer a parameter of the "
        "other rows alone, without weight decay",
        parameter=name,
    )
