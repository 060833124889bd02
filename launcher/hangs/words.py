"""Collectives in a few words."""

from __future__ import annotations

import math

from ..core.quantities import count_of
from ..core.quotation import cleaned
from .standing import Collective
from .waits import is_default


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
