"""Node 0 while it waits for the other nodes: admits them, or refuses them with the reason."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from msgspec import structs

from ..core.errors import ExitCode
from ..core.placement import Placement
from ..core.quantities import count_of
from ..system.event_loop import EventLoop
from .callers import Callers
from .compatibility import misplaced, refusal
from .connection import Connection
from .joining import Accepted, Join, Refusal, Unable
from .listener import Listener
from .missing_nodes import clock, named, seat

PATIENCE = 5.0
"""Seconds of waiting after which the missing nodes are reported."""


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
