"""Ranks that differ where they must be the same, or are the same where they must differ.

Each launcher compares the ranks of its own node, once all of them have told.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .worker_messages import Shared


def told(what: Shared, place: str, values: Mapping[int, str], ranks: Collection[int]) -> str | None:
    """The sentence; None where there is nothing to say.

    Args:
        what: is compared.
        place: the user's line.
        values: what each rank has, as far as it has told.
        ranks: the node's ranks.
    """
    if len(ranks) < 2 or values.keys() != set(ranks):
        return None
    first, *others = sorted(values)
    other = next((rank for rank in others if values[rank] != values[first]), None)
    if what is Shared.SEED and other is not None:
        return (
            f"the ranks shuffle by different seeds (rank {first}: {values[first]}, rank {other}: "
            f"{values[other]}; {place}): each takes its part of another order, so that samples are "
            "seen several times and others never. Give every rank the same seed "
            "(safe-launch explain wrong-loss)"
        )
    if what is Shared.BATCH and len(set(values.values())) == 1:
        return (
            f"every rank trains on the same samples: their first batches are equal, as the loader "
            f"({place}) has no DistributedSampler (safe-launch explain wrong-loss)"
        )
    return None
