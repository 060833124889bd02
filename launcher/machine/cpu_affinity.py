"""Divides CPU cores among the workers of a node, like deepspeed."""

from __future__ import annotations

from collections.abc import Sequence

VARIABLE = "SAFE_LAUNCH_CORES"
"""Variable with a worker's cores, separated by commas."""


def shared(cores: Sequence[int], workers: int) -> tuple[tuple[int, ...], ...]:
    """Divides cores equally among workers, in order, leaving out the remainder.

    Empty for every worker if there are fewer cores than workers.
    """
    share = len(cores) // workers
    return tuple(tuple(cores[place * share : (place + 1) * share]) for place in range(workers))
