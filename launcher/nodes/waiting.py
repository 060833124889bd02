"""Node 0 while it waits for the other nodes: accepts them, or refuses them with the reason."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from functools import partial

from ..core.errors import ExitCode
from ..core.placement import Placement
from ..system.event_loop import EventLoop
from .compatibility import refusal
from .connection import Connection, arrivals
from .messages import Accepted, Join, Refusal

PATIENCE = 5.0
"""Seconds of waiting after which the missing nodes are reported."""
STRANGERS = 64
"""Connections without a join yet, at most, in addition to one for each node."""


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
        self._strangers: dict[Connection, None] = {}  # in the order of arrival
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

    def wait(self, listener: socket.socket) -> None:
        """Returns when all nodes have joined, or when the time is up."""
        with self._loop:
            self._loop.on_readable(listener, partial(self._accept, listener))
            while self.count < self._placement.nodes:
                now = time.monotonic()
                end = self._end(now)
                if now >= end:
                    break
                if now >= self._speaks:
                    self._say(self.text())
                    self._speaks = now + 60
                self._loop.wait(max(0.0, min(end, self._speaks) - now))
        for connection in self._strangers:
            connection.close()

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

    def _accept(self, listener: socket.socket) -> None:
        """Accepts connections; closes the oldest silent ones if there are too many."""
        for connection in arrivals(listener, self._placement.times.silence):
            self._strangers[connection] = None
            self._loop.on_readable(connection, partial(self._receive, connection))
        most = self._placement.nodes + STRANGERS
        for connection in list(self._strangers)[: max(0, len(self._strangers) - most)]:
            self._close(connection)

    def _receive(self, connection: Connection) -> None:
        if connection.fileno() < 0:  # it has just been closed for its silence
            return
        for message in connection.receive():
            if isinstance(message, Join) and connection in self._strangers:
                self._admit(message, connection)
        if connection.fault is not None:
            self._note_end(connection)

    def _admit(self, join: Join, connection: Connection) -> None:
        """Accepts a node, or refuses it with the reason."""
        refused = self._refusal(join)
        if refused is not None:
            self._say(f"refused a node: {refused.problem}")
            connection.send(refused)
            return
        del self._strangers[connection]
        connection.peer = join.host
        self.nodes.append((join, connection))
        connection.send(Accepted(self.count, self._placement.nodes))

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

    def _note_end(self, connection: Connection) -> None:
        """Closes a connection that has ended; its node may come back."""
        if connection.is_foreign:
            self._say(f"refused a node: {connection.peer}: {connection.fault}")
        why = connection.fault
        self._close(connection)
        gone = [join.host for join, other in self.nodes if other is connection]
        self.nodes = [(join, other) for join, other in self.nodes if other is not connection]
        if gone:
            self._say(f"{gone[0]} has left again ({why}); waiting for it")
            silence = self._placement.times.silence
            self._deadline = min(self._deadline, time.monotonic() + silence)

    def _close(self, connection: Connection) -> None:
        self._loop.forget(connection)
        self._strangers.pop(connection, None)
        connection.close()


def refuse_late(listener: socket.socket, nodes: int) -> None:
    """Refuses nodes that come too late."""
    for connection in arrivals(listener, 1.0):
        connection.send(_too_late(nodes))
        connection.close()


def _too_late(nodes: int) -> Refusal:
    problem = f"too late: the job already runs on {nodes} node{'s' if nodes > 1 else ''}"
    return Refusal(ExitCode.RETRY_ELSEWHERE, problem, "wait until that run has ended")
