"""Node 0 of a job that won't start informs the nodes that still come."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..core.placement import Placement
from ..system.event_loop import EventLoop
from .callers import Callers
from .compatibility import misplaced
from .connection import Connection
from .joining import Join, Refusal, Unable
from .listener import Listener
from .missing_nodes import clock, seat

LONGEST = 60.0
"""Seconds at most for which launchers that can't train look for each other: the nodes of a job
rarely start further apart."""


def dismiss(
    listener: Listener,
    placement: Placement,
    why: Refusal,
    told: set[int | str],
    say: Callable[[str], None],
) -> None:
    """Refuses the nodes that still come; adds them to `told`, the informed ones by rank or host."""

    def answer(node: Join | Unable, connection: Connection) -> None:
        outside = misplaced(node, placement.job, placement.nodes)
        connection.send(outside or why)
        if outside is None:
            told.add(seat(node))

    rest = longest = min(LONGEST, placement.times.join)
    end = time.monotonic() + longest
    with EventLoop() as loop:
        callers = Callers(loop, listener, placement.times.silence, placement.nodes, answer, say)
        if len(told) + 1 < placement.nodes:
            say(f"telling the nodes that haven't come yet, until {clock(longest)} at most")
        while len(told) + 1 < placement.nodes and rest > 0:
            loop.wait(rest)
            rest = end - time.monotonic()
        callers.close()
