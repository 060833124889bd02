"""The job's port at node 0, and connections to it that haven't identified themselves yet."""

from __future__ import annotations

import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from ..system.event_loop import EventLoop
from .connection import Connection, keep_alive
from .joining import Join, Unable
from .messages import FromCallers, FromOthers
from .secret import Trust
from .secure_channel import hosting

_BATCH = 64
"""Connections that are accepted at a time."""
STRANGERS = 64
"""Callers at most, in addition to one for each node."""
_TIME = 10.0
"""Seconds for a caller to prove and identify itself; honest ones come again."""
_LINES = 64
"""Different messages about callers at most."""


@dataclass(frozen=True, slots=True)
class Listener:
    """The job's port at node 0, and the proof that both ends give."""

    socket: socket.socket
    trust: Trust

    def fileno(self) -> int:
        """The descriptor, for a selector."""
        return self.socket.fileno()

    def close(self) -> None:
        """Ends listening."""
        self.socket.close()


def listening(port: int, trust: Trust) -> Listener:
    """Listens on every address of this host, IPv4 and IPv6.

    Raises:
        OSError: the port is taken or not permitted.
    """
    if socket.has_dualstack_ipv6():
        with suppress(OSError):
            return Listener(_listening(port, socket.AF_INET6), trust)
    return Listener(_listening(port, socket.AF_INET), trust)


def _listening(port: int, family: socket.AddressFamily) -> socket.socket:
    both = family is socket.AF_INET6
    listener = socket.create_server(("", port), family=family, backlog=4096, dualstack_ipv6=both)
    listener.settimeout(0)
    return listener


def arrivals(listener: Listener, silence: float) -> list[Connection]:
    """Accepts the oldest waiting connections; never waits."""
    accepted: list[Connection] = []
    for _ in range(_BATCH):
        try:
            opened, address = listener.socket.accept()
            keep_alive(opened, silence)
        except (ConnectionError, TimeoutError):  # closed before it was accepted
            continue
        except OSError:  # nobody is left, or there are too many open files
            break
        peer = address[0].removeprefix("::ffff:")
        accepted.append(Connection(opened, peer, FromCallers).begin(hosting(listener.trust)))
    return accepted


@dataclass(slots=True)
class Callers:
    """Accepts connections and identifies their callers.

    If there are too many, random ones of the address with the most are closed: a flood from one
    host doesn't affect other hosts, and a node on that host has its chance. If most of these are
    silent, one of the silent ones is closed, as a node speaks at once.

    Attributes:
        loop: the loop that handles the connections.
        listener: the job's port.
        silence: seconds after which an unreachable host counts as lost.
        nodes: the number of nodes.
        admits: answers a node; returns the further reader of its connection, None if refused.
        note: called with a sentence on a caller without proof, or that breaks the protocol.
    """

    loop: EventLoop
    listener: Listener
    silence: float
    nodes: int
    admits: Callable[[Join | Unable, Connection], Callable[[], None] | None]
    note: Callable[[str], None]
    _noted: set[str] = field(default_factory=set)
    _callers: dict[Connection, float] = field(default_factory=dict)  # by arrival: until when
    _heard: set[Connection] = field(default_factory=set)  # have begun to prove themselves

    def __post_init__(self) -> None:
        self.loop.on_readable(self.listener, self._accept)

    def close(self) -> None:
        """Closes the connections of all callers."""
        self.loop.forget(self.listener)
        for connection in list(self._callers):
            self._close(connection)

    def _accept(self) -> None:
        for connection in arrivals(self.listener, self.silence):
            if not self._callers:
                self.loop.after(_TIME, self._expire)
            self._callers[connection] = time.monotonic() + _TIME
            self.loop.on_readable(connection, partial(self._receive, connection))
        while len(self._callers) > self.nodes + STRANGERS:
            ((crowded, _),) = Counter(caller.peer for caller in self._callers).most_common(1)
            crowd = [caller for caller in self._callers if caller.peer == crowded]
            silent = [caller for caller in crowd if caller not in self._heard]
            self._close(secrets.choice(silent if 2 * len(silent) > len(crowd) else crowd))

    def _expire(self) -> None:
        """Closes the connections of those whose time is over."""
        now = time.monotonic()
        for connection in [caller for caller, until in self._callers.items() if until <= now]:
            self._close(connection)
        if self._callers:
            self.loop.after(next(iter(self._callers.values())) - now, self._expire)

    def _receive(self, connection: Connection) -> None:
        if connection not in self._callers:  # it has just been closed
            return
        if messages := connection.receive():
            self._forget(connection)
            message = messages[0]
            reader = None
            if isinstance(message, Join | Unable):
                reader = self.admits(message, connection)
            if reader is None:
                connection.close()
            else:
                connection.allowed = FromOthers
                self.loop.on_readable(connection, reader)
            return
        if connection.is_foreign:
            self._note_once(f"refused a node: {connection.peer}: {connection.fault}")
        if connection.fault is not None:
            self._close(connection)
        else:
            self._heard.add(connection)

    def _note_once(self, sentence: str) -> None:
        if sentence not in self._noted and len(self._noted) < _LINES:
            self._noted.add(sentence)
            self.note(sentence)

    def _close(self, connection: Connection) -> None:
        self._forget(connection)
        connection.close()

    def _forget(self, connection: Connection) -> None:
        self.loop.forget(connection)
        del self._callers[connection]
        self._heard.discard(connection)
