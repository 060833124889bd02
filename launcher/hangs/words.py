"""Ranks and collectives in words, as short as they can be said."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import groupby

from ..core.control_sequences import cleaned
from ..core.count_of import count_of, noun_of
from .standing import Collective
from .waits import is_default

MOST = 6
"""Ranges that are told; more only say how many ranks there are."""


def ranks_text(ranks: Iterable[int]) -> str:
    """Ranks as in `rank 1` or `ranks 0, 2 to 7`."""
    listed = sorted(set(ranks))
    runs = [
        [rank for _, rank in run]
        for _, run in groupby(enumerate(listed), lambda pair: pair[1] - pair[0])
    ]
    texts = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    if len(texts) > MOST:
        return f"{count_of(len(listed), 'rank')} ({', '.join(texts[: MOST - 1])}, ...)"
    return f"{noun_of(len(listed), 'rank')} {', '.join(texts)}"


def collective_text(collective: Collective) -> str:
    """A collective as in `all_reduce 412 (12,480 floats)`."""
    if collective.is_message:
        return str(cleaned(collective.kind.replace("->", " to ").replace("<-", " from ")))
    count = sum(map(math.prod, collective.shapes))
    dtypes = sorted({dtype.lower() for dtype in collective.dtypes})
    noun = dtypes[0] if len(dtypes) == 1 else "element"
    size = f" ({count_of(count, noun)})" if collective.shapes and count else ""
    name, _, description = collective.group.partition(" ")
    known = description if description not in ("", "undefined") else name
    group = "" if is_default(collective.group) or not known else f" of group {known}"
    return str(cleaned(f"{collective.kind} {collective.number}{size}{group}"))
