"""Nodes that are waited for, in words."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..core.quantities import noun_of, ranges_of
from .compatibility import first_hosts
from .joining import Join, Unable


def seat(node: Join | Unable) -> int | str:
    """A node's identity within its job: its rank, or its host if it has none."""
    return node.host if node.rank is None else node.rank


def named(ranks: Sequence[int], hosts: Sequence[str]) -> str:
    """Sorted ranks with the first of their hosts: `rank 2 (n3)`, `ranks 2 to 5, 9 (n3, n4, ...)`.

    The `hosts` of all ranks are empty if they aren't known.
    """
    names = [hosts[rank] for rank in ranks if rank < len(hosts)]
    text = f"{noun_of(len(ranks), 'rank')} {', '.join(ranges_of(ranks))}"
    return f"{text} ({first_hosts(names)})" if names else text


def clock(seconds: float) -> str:
    """The time of day after some seconds, to the minute if that is far off."""
    form = "%H:%M" if seconds >= 60 else "%H:%M:%S"
    return time.strftime(form, time.localtime(time.time() + seconds))
