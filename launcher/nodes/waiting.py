"""Node 0 while it waits for the other nodes: takes them in, or tells them why not."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from functools import partial

from ..core.errors import ExitCode
from ..core.placement import Placement
from ..system.event_loop import EventLoop
from .compatibility import refusal
from .connection import Link, arrivals
from .messages import Admitted, Hello, Refusal

PATIENCE = 5.0
"""Seconds after which somebody who waits says for whom."""
STRANGERS = 64
"""Connections, beyond one for each node, on which nobody has said yet who it is."""


class Waiting:
    """Node 0 while it waits for the others.

    Attributes:
        nodes: who has joined, each with its connection.
    """

    def __init__(self, placement: Placement, own: Hello, say: Callable[[str], None]) -> None:
        self.nodes: list[tuple[Hello, Link]] = []
        self._placement = placement
        self._own = own
        self._say = say
        self._loop = EventLoop()
        self._strangers: dict[Link, None] = {}  # in the order in which they came
        self._began = time.monotonic()
        self._deadline = self._began + placement.times.join
        self._speaks = self._began + PATIENCE
        self._enough_since: float | None = None

    @property
    def count(self) -> int:
        """The nodes that are here, with node 0."""
        return len(self.nodes) + 1

    def elapsed(self) -> float:
        """Seconds since the waiting began."""
        return time.monotonic() - self._began

    def wait(self, listener: socket.socket) -> None:
        """Returns when all nodes are here, or it has waited long enough."""
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
        for link in self._strangers:
            link.close()

    def text(self) -> str:
        """Who is here and who isn't."""
        here = {0, *(hello.rank for hello, _ in self.nodes)}
        text = f"{self.count} of {self._placement.nodes} nodes have joined"
        missing = sorted(set(range(self._placement.nodes)) - here)
        if None in here or len(missing) > 20:
            return text
        return f"{text}; missing: {', '.join(map(str, missing))}"

    def _end(self, now: float) -> float:
        """When the waiting ends: in time for the last call, once enough nodes are here."""
        if self.count < self._placement.least:
            self._enough_since = None
            return self._deadline
        self._enough_since = self._enough_since or now
        return min(self._deadline, self._enough_since + self._placement.times.last_call)

    def _accept(self, listener: socket.socket) -> None:
        """Takes connections; ends the oldest silent ones where they are too many."""
        for link in arrivals(listener, self._placement.times.silence):
            self._strangers[link] = None
            self._loop.on_readable(link, partial(self._receive, link))
        most = self._placement.nodes + STRANGERS
        for link in list(self._strangers)[: max(0, len(self._strangers) - most)]:
            self._close(link)

    def _receive(self, link: Link) -> None:
        if link.fileno() < 0:  # it has just been closed for having been silent
            return
        for message in link.receive():
            if isinstance(message, Hello) and link in self._strangers:
                self._admit(message, link)
        if link.fault is not None:
            self._note_end(link)

    def _admit(self, hello: Hello, link: Link) -> None:
        """Takes a node in, or tells it why not."""
        refused = self._refusal(hello)
        if refused is not None:
            self._say(f"refused a node: {refused.problem}")
            link.send(refused)
            return
        del self._strangers[link]
        link.peer = hello.host
        self.nodes.append((hello, link))
        link.send(Admitted(self.count, self._placement.nodes))

    def _refusal(self, hello: Hello) -> Refusal | None:
        """Why a node can't take part; None where it can."""
        nodes = self._placement.nodes
        if self.count == nodes:  # it has come at the same moment as the last one
            return _too_late(nodes)
        ranked = {other.rank: other.host for other, _ in self.nodes if other.rank is not None}
        if hello.rank not in ranked:
            return refusal(hello, self._own, nodes)
        first = ranked[hello.rank]
        problem = f"{hello.host} says that it is node {hello.rank}, as {first} has said"
        # A pod that replaces one which vanished without a word has its name, and may try again.
        code = ExitCode.RETRY_ELSEWHERE if first == hello.host else ExitCode.USAGE
        return Refusal(code, problem, "give every node a --node-rank of its own")

    def _note_end(self, link: Link) -> None:
        """Closes a connection that has ended; the node that it was of may come back."""
        if link.is_foreign:
            self._say(f"refused a node: {link.peer}: {link.fault}")
        why = link.fault
        self._close(link)
        gone = [hello.host for hello, other in self.nodes if other is link]
        self.nodes = [(hello, other) for hello, other in self.nodes if other is not link]
        if gone:
            self._say(f"{gone[0]} has gone again ({why}); waiting for it")
            silence = self._placement.times.silence
            self._deadline = min(self._deadline, time.monotonic() + silence)

    def _close(self, link: Link) -> None:
        self._loop.forget(link)
        self._strangers.pop(link, None)
        link.close()


def refuse_late(listener: socket.socket, nodes: int) -> None:
    """Tells nodes that come too late so."""
    for link in arrivals(listener, 1.0):
        link.send(_too_late(nodes))
        link.close()


def _too_late(nodes: int) -> Refusal:
    problem = f"too late: the job already runs on {nodes} node{'s' if nodes > 1 else ''}"
    return Refusal(ExitCode.RETRY_ELSEWHERE, problem, "wait until that run has ended")
