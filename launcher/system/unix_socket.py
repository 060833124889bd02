"""Identifies the process at the other end of a Unix socket."""

from __future__ import annotations

import os
import socket
import struct


def peer(connection: socket.socket) -> tuple[int, int]:
    """Process id and user of the other end, from the kernel (unix(7), SO_PEERCRED)."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, user, _ = struct.unpack("iII", credentials)
    return pid, user


def accept(listener: socket.socket) -> tuple[socket.socket, int] | None:
    """The next connection, with the peer's process id; None if it belongs to another user."""
    connection, _ = listener.accept()
    pid, user = peer(connection)
    if user == os.getuid():
        return connection, pid
    connection.close()
    return None
