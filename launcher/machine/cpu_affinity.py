"""Processor cores, shared out over the workers of a node as deepspeed does it."""

from __future__ import annotations

from collections.abc import Sequence

VARIABLE = "SAFE_LAUNCH_CORES"
"""The cores of a worker, separated by commas."""


def core_list(text: str) -> tuple[int, ...] | None:
    """The cores of `0-3,8`, in ascending order and each once; None where it is no such list."""
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
    """As many cores for each worker, in their order; what can't be divided is left.

    None for anybody where there are fewer cores than workers.
    """
    each = len(cores) // workers
    return tuple(tuple(cores[place * each : (place + 1) * each]) for place in range(workers))
