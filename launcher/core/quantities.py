"""Quantities in words: counts that agree with their noun, ranks as ranges, units of memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

GIB = 2**30
MIB = 2**20
MOST = 6
"""Ranges of ranks that are shown; beyond them only their number."""


def count_of(number: int, singular: str, plural: str = "") -> str:
    """A number with its noun, as in `1 run`, `2 processes` or `12,480 more places`.

    The singular may have words around the noun, as in `node is left`; the plural is by default the
    singular with the ending of its last word.
    """
    return f"{number:,} {noun_of(number, singular, plural)}"


def noun_of(number: int, singular: str, plural: str = "") -> str:
    """The noun alone, for things that are then named, as in `ranks 0, 1`."""
    return singular if number == 1 else plural or plural_of(singular)


def plural_of(noun: str) -> str:
    """The plural of a noun that follows the rule."""
    if noun.endswith(("s", "x", "ch", "sh")):
        return f"{noun}es"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"


def ranks_text(ranks: Iterable[int]) -> str:
    """Ranks as in `rank 1` or `ranks 0, 2 to 7`."""
    listed = sorted(set(ranks))
    texts = ranges_of(listed)
    if len(texts) > MOST:
        return f"{count_of(len(listed), 'rank')} ({', '.join(texts[: MOST - 1])}, ...)"
    return f"{noun_of(len(listed), 'rank')} {', '.join(texts)}"


def ranges_of(ranks: Sequence[int]) -> list[str]:
    """Sorted ranks as ranges: `0, 1`, `3 to 7`."""
    groups = groupby(enumerate(ranks), lambda pair: pair[1] - pair[0])
    runs = [[rank for _, rank in run] for _, run in groups]
    return [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
