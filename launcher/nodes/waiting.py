"""Node 0 while it waits for the other nodes: accepts them, or refuses them with the reason."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from ..core.errors import ExitCode
from ..core.placement import Placement
from ..system.event_loop import EventLoop
from .callers import Callers
from .compatibility import refusal
from .connection import Connection, Listener
from .messages import Accepted, Join, Refusal

PATIENCE = 5.0
"""Seconds of waiting after which the missing nodes are reported."""


class Waiting:
    """Node 0 while it waits for the others.

    Attributes:
        nodes: the nodes that have joined, each with its connection.
    """

    def __init__(self, placement: Placement, own: Join, say: Callable[[str], None]) -> None:
        self.nodes: list[tuple[Join, Connection]] = []
        self._placement = placement
        self._own = own
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

    def elapsed(self) -> float:
        """Seconds since the waiting began."""
        return time.monotonic() - self._began

    def wait(self, listener: Listener) -> None:
        """Returns when all nodes have joined, or when the time is up."""
        nodes, silence = self._placement.nodes, self._placement.times.silence
        with self._loop:
            callers = Callers(self._loop, listener, silence, nodes, self._answer, self._say)
            while self.count < self._placement.nodes:
                now = time.monotonic()
                end = self._end(now)
                if now >= end:
                    break
                if now >= self._speaks:
                    self._say(self.text())
                    self._speaks = now + 60
                self._loop.wait(max(0.0, min(end, self._speaks) - now))
            callers.close()

    def text(self) -> str:
        """How many nodes have joined, and which are missing."""
        here = {0, *(join.rank for join, _ in self.nodes)}
        text = f"{self.count} of {self._placement.nodes} nodes have joined"
        missing = sorted(set(range(self._placement.nodes)) - here)
        if None in here or len(missing) > 20:
            return text
        return f"{text}; missing: {', '.join(map(str, missing))}"

    def _end(self, now: float) -> float:
        """When the waiting ends: once the minimum of nodes has joined, after the last call."""
        if self.count < self._placement.least:
            self._enough_since = None
            return self._deadline
        self._enough_since = self._enough_since or now
        return min(self._deadline, self._enough_since + self._placement.times.last_call)

    def _answer(self, node: Join, connection: Connection) -> Callable[[], None] | None:
        """Accepts a node, or refuses it with the reason."""
        if (refused := self._refusal(node)) is not None:
            self._say(f"refused a node: {refused.problem}")
            connection.send(refused)
            return None
        connection.peer = node.host
        self.nodes.append((node, connection))
        connection.send(Accepted(self.count, self._placement.nodes))
        return partial(self._receive, connection)

    def _refusal(self, join: Join) -> Refusal | None:
        """Why a node can't take part; None where it can."""
        nodes = self._placement.nodes
        if self.count == nodes:  # it arrived at the same moment as the last node
            return _too_late(nodes)
        ranked = {other.rank: other.host for other, _ in self.nodes if other.rank is not None}
        if join.rank not in ranked:
            return refusal(join, self._own, nodes)
        first = ranked[join.rank]
        problem = f"{join.host} says that it is node {join.rank}, as {first} has said"
        # A pod that replaces a vanished pod has the same name, and may try again.
        code = ExitCode.RETRY_ELSEWHERE if first == join.host else ExitCode.USAGE
        return Refusal(code, problem, "give every node a --node-rank of its own")

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


def refuse_late(loop: EventLoop, listener: Listener, silence: float, nodes: int) -> Callers:
    """Refuses nodes that come too late."""

    def refuse(_node: Join, connection: Connection) -> None:
        connection.send(_too_late(nodes))

    return Callers(loop, listener, silence, nodes, refuse, lambda _sentence: None)


def _too_late(nodes: int) -> Refusal:
    problem = f"too late: the job already runs on {nodes} node{'s' if nodes > 1 else ''}"
    return Refusal(ExitCode.RETRY_ELSEWHERE, problem, "wait until that run has ended")
