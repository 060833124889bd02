"""Nodes that are waited for, in words."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

from ..core.count_of import noun_of
from .compatibility import first_hosts
from .joining import Join, Unable


def seat(node: Join | Unable) -> int | str:
    """A node's identity within its job: its rank, or its host if it has none."""
    return node.host if node.rank is None else node.rank


def named(ranks: Sequence[int], hosts: Sequence[str]) -> str:
    """Ranks with the first of their hosts: `rank 2 (n3)`, `ranks 2 to 5, 9 (n3, n4, ...)`.

    Args:
        ranks: in ascending order.
        hosts: names of all hosts by rank; empty if they aren't known.
    """
    runs = itertools.groupby(enumerate(ranks), lambda pair: pair[1] - pair[0])
    spans = [[rank for _, rank in run] for _, run in runs]
    texts = [
        f"{span[0]} to {span[-1]}" if len(span) > 2 else ", ".join(map(str, span)) for span in spans
    ]
    names = [hosts[rank] for rank in ranks if rank < len(hosts)]
    text = f"{noun_of(len(ranks), 'rank')} {', '.join(texts)}"
    return f"{text} ({first_hosts(names)})" if names else text


def clock(seconds: float) -> str:
    """The time of day in so many seconds on this host's clock, to the minute if that is far off."""
    form = "%H:%M" if seconds >= 60 else "%H:%M:%S"
    return time.strftime(form, time.localtime(time.time() + seconds))
