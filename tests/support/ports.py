"""Ports for a test that must name one before anybody listens there."""

from __future__ import annotations

import socket

HELD: list[socket.socket] = []


def held_port() -> socket.socket:
    """A socket with a port that the kernel has chosen, and gives nobody else until it is closed.

    Whoever is told the port can listen there: servers ask for an address though it is bound, and
    get it as long as nobody listens (socket(7), SO_REUSEADDR).
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("", 0))
    return holder


def free_port() -> int:
    """Such a port, held as long as this process lives."""
    HELD.append(held_port())
    return int(HELD[-1].getsockname()[1])
