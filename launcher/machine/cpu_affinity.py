"""Divides CPU cores among the workers of a node, like deepspeed."""

from __future__ import annotations

from collections.abc import Sequence

VARIABLE = "SAFE_LAUNCH_CORES"
"""Variable with a worker's cores, separated by commas."""


def core_list(text: str) -> tuple[int, ...] | None:
    """Parses `0-3,8` to ascending cores without duplicates; None if invalid."""
    cores: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not (first.isascii() and first.isdigit()) or (dash and not last.isdigit()):
            return None
        span = range(int(first), int(last or first) + 1)
        if not span or (cores and span[0] <= cores[-1]):
            return None
        cores += span
    return tuple(cores)


def shared(cores: Sequence[int], workers: int) -> tuple[tuple[int, ...], ...]:
    """Divides cores equally among workers, in order, leaving out the remainder.

    Empty for every worker if there are fewer cores than workers.
    """
    share = len(cores) // workers
    return tuple(tuple(cores[place * share : (place + 1) * share]) for place in range(workers))
