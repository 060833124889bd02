"""Divides CPU cores among the workers of a node, like deepspeed."""

from __future__ import annotations

from collections.abc import Sequence

VARIABLE = "SAFE_LAUNCH_CORES"
"""Variable with a worker's cores, separated by commas."""


def core_list(text: str) -> tuple[int, ...] | None:
    """The cores of `0-3,8`, in ascending order without duplicates; None for an invalid list."""
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
    """An equal number of cores for each worker, in order; the remainder isn't used.

    Empty for every worker if there are fewer cores than workers.
    """
    share = len(cores) // workers
    return tuple(tuple(cores[place * share : (place + 1) * share]) for place in range(workers))
