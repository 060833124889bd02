"""Checks the tables of positions that a model keeps in its buffers."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.quantities import count_of
from .finding import Check, Finding, first_of

EXACT = {"bfloat16": 256, "float16": 2048}
"""The last whole number up to which a dtype has all of them."""


def uninitialized(names: Sequence[str]) -> Finding | None:
    """Reports buffers that are still what the memory held when `to_empty` made them.

    Args:
        names: buffers that no checkpoint has, unchanged since.
    """
    if not names:
        return None
    return Finding(
        Check.TRAINED,
        certain=True,
        sentence=f"{count_of(len(names), 'buffer')} {'is' if len(names) == 1 else 'are'} "
        f"uninitialized: {first_of(names)}, which to_empty() has made from the meta device, and "
        "nothing has written since (persistent=False: no checkpoint has it)",
        advice="Compute them again after to_empty(), e.g. in reset_parameters() of their module",
        step=1,
        parameter=names[0],
    )


def coarse(name: str, dtype: str, positions: int) -> Finding | None:
    """Reports frequencies of positions in half precision, with more positions than it counts.

    Args:
        name: the buffer.
        dtype: its dtype.
        positions: the longest input of its module.
    """
    if positions <= EXACT.get(dtype, positions):
        return None
    return Finding(
        Check.PRECISION,
        certain=False,
        sentence=f"the frequencies of the positions, {name}, are in {dtype}, which has not all "
        f"whole numbers beyond {EXACT[dtype]}, and texts have {positions:,} positions: distant "
        "ones are rotated wrongly",
        advice="Keep it in float32, and cast the parameters alone: compute it again after the cast",
        parameter=name,
    )
