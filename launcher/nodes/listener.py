"""The job's port at node 0, which accepts the other launchers' connections."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass

from .connection import Connection, keep_alive
from .handshake import hosting
from .messages import FromCallers
from .secret import Trust

BATCH = 64
"""Connections that are accepted at a time."""


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
    for _ in range(BATCH):
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
