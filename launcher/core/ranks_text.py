"""Ranks in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from .count_of import count_of, noun_of

MOST = 6
"""Ranges that are shown; beyond them only the number of ranks."""


def ranges_of(ranks: Sequence[int]) -> list[str]:
    """Sorted ranks as ranges: `0, 1`, `3 to 7`."""
    groups = groupby(enumerate(ranks), lambda pair: pair[1] - pair[0])
    runs = [[rank for _, rank in run] for _, run in groups]
    return [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]


def ranks_text(ranks: Iterable[int]) -> str:
    """Ranks as in `rank 1` or `ranks 0, 2 to 7`."""
    listed = sorted(set(ranks))
    texts = ranges_of(listed)
    if len(texts) > MOST:
        return f"{count_of(len(listed), 'rank')} ({', '.join(texts[: MOST - 1])}, ...)"
    return f"{noun_of(len(listed), 'rank')} {', '.join(texts)}"
