"""Refuses launchers that reach a job which won't start or has started, with the reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..core.errors import ExitCode
from ..core.placement import Placement
from ..core.quantities import count_of
from ..system.event_loop import EventLoop
from .callers import Callers
from .compatibility import misplaced, of_another_job
from .connection import Connection
from .joining import Join, Refusal, Unable
from .listener import Listener
from .missing_nodes import clock, seat
from .peers import Peers

LONGEST = 60.0
"""Seconds at most for which launchers that can't train look for each other: the nodes of a job
rarely start further apart."""


def dismiss(
    listener: Listener,
    placement: Placement,
    why: Refusal,
    informed: set[int | str],
    say: Callable[[str], None],
) -> None:
    """Refuses the nodes that still come; adds them to the `informed` ones, by rank or host."""

    def answer(node: Join | Unable, connection: Connection) -> None:
        outside = misplaced(node, placement.job, placement.nodes)
        connection.send(outside or why)
        if outside is None:
            informed.add(seat(node))

    rest = longest = min(LONGEST, placement.times.join)
    end = time.monotonic() + longest
    with EventLoop() as loop:
        callers = Callers(loop, listener, placement.times.silence, placement.nodes, answer, say)
        if len(informed) + 1 < placement.nodes:
            say(f"informing the nodes that haven't joined yet, until {clock(longest)} at most")
        while len(informed) + 1 < placement.nodes and rest > 0:
            loop.wait(rest)
            rest = end - time.monotonic()
        callers.close()


@contextmanager
def late_ones_refused(peers: Peers, loop: EventLoop) -> Iterator[None]:
    """Refuses launchers that come while an attempt runs; on node 0 alone."""
    if peers.listener is None:
        yield
        return

    def answer(node: Join | Unable, connection: Connection) -> None:
        connection.send(too_late(node, peers))

    nodes = len(peers.connections)
    callers = Callers(loop, peers.listener, peers.silence, nodes, answer, lambda _line: None)
    yield
    callers.close()


def too_late(node: Join | Unable, peers: Peers) -> Refusal:
    """Why a launcher can't take part in a run that has begun.

    If it replaces a node that the run has lost, or is about to lose, it may join the next run. Else
    its start was a mistake, and a repetition would be one too.
    """
    count = len(peers.connections) + 1
    running = f"a run of {count_of(count, 'node')} is under way"
    if (another := of_another_job(node, peers.job)) is not None:
        return another
    holder = None if node.rank is None else peers.connections.get(node.rank)
    if peers.has_trouble or (holder is not None and holder.peer == node.host):
        problem = f"too late: {running} here, which {node.host} can't join any more"
        return Refusal(ExitCode.RETRY_ELSEWHERE, problem, "start it again when that run has ended")
    who = "" if holder is None else f", and {holder.peer} is its node {node.rank}"
    hint = (
        "nodes can join only at a run's start; if that run is another job's, give this job "
        "another --master-port (or --rdzv-endpoint)"
    )
    return Refusal(ExitCode.USAGE, f"too late: {running} at this port{who}", hint)
