"""The servers that launches have left for the next ones: their sockets' names tell of them.

A name has no file, so nothing is left behind where a server is killed. Any user can take a name,
therefore both ends ask the kernel who the other is.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

SOCKETS = Path("/proc/net/unix")
PREFIX = "safe-launch-warm"


@dataclass(frozen=True, slots=True)
class WarmServer:
    """A server that waits for the next launch.

    Attributes:
        uid: its user.
        key: what a launch must have in common with the one that left it.
        pid: its process id.
        until: when it ends, in seconds of `clock`.
    """

    uid: int
    key: str
    pid: int
    until: int

    @classmethod
    def named(cls, name: str) -> Self | None:
        """The server with this name; None where the name isn't a server's."""
        match name.split("/"):
            case [prefix, uid, key, pid, until] if prefix == PREFIX:
                if uid.isdecimal() and pid.isdecimal() and until.isdecimal():
                    return cls(int(uid), key, int(pid), int(until))
        return None

    @property
    def address(self) -> str:
        """The address of its socket, in Linux's abstract namespace."""
        return f"\0{PREFIX}/{self.uid}/{self.key}/{self.pid}/{self.until}"

    @property
    def left(self) -> float:
        """Seconds until it ends."""
        return self.until - clock()

    def connect(self) -> socket.socket | None:
        """A connection to it; None where it has ended, or isn't this user's."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with suppress(OSError):
            connection.connect(self.address)
            if peer(connection) == (self.pid, os.geteuid()):
                return connection
        connection.close()
        return None

    def end(self) -> bool:
        """Ends it; returns whether it was running."""
        connection = self.connect()
        if connection is None:
            return False
        with connection, suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        return True


def found(key: str = "") -> list[WarmServer]:
    """This user's servers, the one that ends last first.

    Args:
        key: only those with this key.
    """
    try:
        lines = SOCKETS.read_text(errors="replace").splitlines()
    except OSError:
        return []
    names = {line.rpartition(" @")[2] for line in lines if f" @{PREFIX}/" in line}
    servers = [server for server in map(WarmServer.named, names) if server is not None]
    own = [server for server in servers if server.uid == os.geteuid()]
    return sorted(
        (server for server in own if key in ("", server.key)),
        key=lambda server: server.until,
        reverse=True,
    )


def peer(connection: socket.socket) -> tuple[int, int]:
    """Process id and user of the other end, as the kernel knows them (unix(7), SO_PEERCRED)."""
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid, uid, _ = struct.unpack("3i", credentials)
    return pid, uid


def clock() -> float:
    """Seconds since the host's start, those in which it slept included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
