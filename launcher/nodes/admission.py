"""Node 0's answers to launchers: while it waits for them, after it gave up, and during a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from msgspec import structs

from ..core.errors import ExitCode
from ..core.placement import Placement
from ..core.quantities import count_of, noun_of, ranges_of
from ..system.event_loop import EventLoop
from .compatibility import first_hosts, misplaced, of_another_job, refusal
from .connection import Connection
from .joining import Accepted, Join, Refusal, Unable
from .listener import Callers, Listener
from .peers import Peers

PATIENCE = 5.0
"""Seconds of waiting after which the missing nodes are reported."""
LONGEST = 60.0
"""Seconds at most for which launchers that can't train look for each other: the nodes of a job
rarely start further apart."""


class Waiting:
    """Node 0 while it waits for the others.

    Attributes:
        nodes: the nodes that have joined, each with its connection.
        over: why the job can't start without the nodes that can't take part; None while it can.
        refused: nodes of this job that can't take part, by rank or host name.
    """

    def __init__(self, placement: Placement, head: Join, say: Callable[[str], None]) -> None:
        self.nodes: list[tuple[Join, Connection]] = []
        self.over: Refusal | None = None
        self.refused: set[int | str] = set()
        self._placement = placement
        self._head = head
        self._say = say
        self._loop = EventLoop()
        self._began = time.monotonic()
        self._deadline = self._began + placement.times.join
        self._speaks = self._began + PATIENCE
        self._enough_since: float | None = None

    @property
    def count(self) -> int:
        """The number of nodes that have joined, node 0 included."""
        return len(self.nodes) + 1

    def wait(self, listener: Listener) -> None:
        """Returns when all nodes have joined, when too few can, or when the time is up."""
        nodes, silence = self._placement.nodes, self._placement.times.silence
        with self._loop:
            callers = Callers(self._loop, listener, silence, nodes, self._answer, self._say)
            while self.count < nodes and self.over is None:
                now = time.monotonic()
                end = self._end(now)
                if now >= end:
                    break
                if now >= self._speaks:
                    missing = self._missing() or f"{nodes - self.count} more"
                    waiting = f"waiting for {missing}, gives up at {clock(self._deadline - now)}"
                    self._say(f"{self._joined()}; {waiting}")
                    self._speaks = now + 60
                self._loop.wait(max(0.0, min(end, self._speaks) - now))
            callers.close()

    def text(self) -> str:
        """The nodes that have joined and those that haven't, with the time."""
        missing = self._missing()
        text = f"{self._joined()}; {f'{missing} never joined; ' if missing else ''}gave up"
        return f"{text} after {time.monotonic() - self._began:.0f} s"

    def _joined(self) -> str:
        return f"{self.count} of {count_of(self._placement.nodes, 'node has', 'nodes have')} joined"

    def _missing(self) -> str:
        """The ranks that are missing, with their hosts; empty if ranks aren't known."""
        here = {0, *(join.rank for join, _ in self.nodes)}
        missing = sorted(set(range(self._placement.nodes)) - here)
        return "" if None in here else named(missing, self._placement.hosts)

    def _end(self, now: float) -> float:
        """When the waiting ends: once the minimum of nodes has joined, after the last call."""
        if self.count < self._placement.least:
            self._enough_since = None
            return self._deadline
        self._enough_since = self._enough_since or now
        return min(self._deadline, self._enough_since + self._placement.times.last_call)

    def _answer(self, node: Join | Unable, connection: Connection) -> Callable[[], None] | None:
        """Accepts a node, or refuses it with the reason."""
        nodes = self._placement.nodes
        double = self._double(node)
        refused = double or refusal(node, self._head, nodes)
        if refused is None and isinstance(node, Join):
            self.refused.discard(seat(node))
            connection.peer = node.host
            self.nodes.append((node, connection))
            connection.send(Accepted(self.count, nodes))
            return partial(self._receive, connection)
        assert refused is not None, "a node that can't take part has said why"
        connection.send(refused)
        if double is None and misplaced(node, self._head.job, nodes) is None:
            self._do_without(node, refused)
        else:
            self._say(f"refused a node: {refused.problem}")
        return None

    def _double(self, node: Join | Unable) -> Refusal | None:
        """Refuses a launcher whose place another has taken; None if it has a place."""
        nodes = self._placement.nodes
        if self.count == nodes:  # it arrived at the same moment as the last node
            return Refusal(
                ExitCode.USAGE, f"too late: all {count_of(nodes, 'node')} of the job are here"
            )
        ranked = {other.rank: other.host for other, _ in self.nodes if other.rank is not None}
        if node.rank not in ranked:
            return None
        first = ranked[node.rank]
        problem = f"{node.host} says that it is node {node.rank}, as {first} has said"
        # A pod that replaces a vanished pod has the same name, and may try again.
        code = ExitCode.RETRY_ELSEWHERE if first == node.host else ExitCode.USAGE
        return Refusal(code, problem, "give every node a --node-rank of its own")

    def _do_without(self, node: Join | Unable, refused: Refusal) -> None:
        """Continues without a node, or ends the waiting if too few are left."""
        self.refused.add(seat(node))
        if self._placement.nodes - len(self.refused) < self._placement.least:
            self.over = structs.replace(refused, problem=f"{refused.problem}; no node can start")
        else:
            self._say(f"refused a node: {refused.problem}; the others continue without it")

    def _receive(self, connection: Connection) -> None:
        """Notices the end of a node that has joined; it may come back."""
        connection.receive()
        if connection.fault is None:
            return
        if connection.is_foreign:
            self._say(f"refused a node: {connection.peer}: {connection.fault}")
        self._loop.forget(connection)
        connection.close()
        self.nodes = [(join, other) for join, other in self.nodes if other is not connection]
        self._say(f"{connection.peer} has left again ({connection.fault}); waiting for it")
        silence = self._placement.times.silence
        self._deadline = min(self._deadline, time.monotonic() + silence)


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
