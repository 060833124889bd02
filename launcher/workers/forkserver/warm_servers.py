"""The servers that launches have left for later ones, found by the names of their sockets.

The sockets are in a folder that only this user can enter. A name in Linux's abstract namespace
would be within reach of every container on the host's network, in which this user's number may be
another user's.
"""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from ...system import private_files
from ...system.unix_sockets import at_folder, peer

PLACES = ("root", "ns/mnt", "ns/pid", "ns/user")
"""Links in /proc/PID to a process's root and namespaces (proc(5))."""


@dataclass(frozen=True, slots=True)
class WarmServer:
    """A server that waits for the next launch.

    Attributes:
        folder: the folder of its socket.
        key: key that a launch must share with the one that left it.
        until: when it ends, in seconds of `clock`.
    """

    folder: Path
    key: str
    pid: int
    until: int

    @classmethod
    def at(cls, folder: Path, name: str) -> Self | None:
        """The server with this socket; None if the name isn't one's on this host."""
        match name.rsplit("-", 3):
            case [key, pid, until, host] if key and host == boot():
                if pid.isdecimal() and until.isdecimal():
                    return cls(folder, key, int(pid), int(until))
        return None

    @property
    def name(self) -> str:
        """The name of its socket; hosts may share the folder."""
        return f"{self.key}-{self.pid}-{self.until}-{boot()}"

    @property
    def left(self) -> float:
        """Seconds until it ends."""
        return self.until - clock()

    def listen(self) -> socket.socket:
        """Its socket, which becomes visible once it listens.

        Raises:
            OSError: there is no room, or the file system has no sockets.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with at_folder(self.folder, f".{self.name}") as path:
            listener.bind(path)
            listener.listen()
            Path(path).rename(self.folder / self.name)
        return listener

    def connect(self) -> socket.socket | None:
        """A connection to it; None if it has ended, or isn't this user's."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with at_folder(self.folder, self.name) as path:
                connection.connect(path)
            if peer(connection) == (self.pid, os.geteuid()):
                return connection
        except ConnectionRefusedError:
            self.forget()  # it was killed
        except OSError:
            pass
        connection.close()
        return None

    def forget(self) -> None:
        """Removes its socket."""
        with suppress(OSError):
            (self.folder / self.name).unlink()

    def end(self) -> bool:
        """Ends it; returns whether it was running."""
        connection = self.connect()
        if connection is None:
            return False
        with connection, suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.forget()
        return True


def _places() -> Iterator[Path]:
    """Folders for the sockets: one that ends with the user's sessions, else a temporary one."""
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime).absolute() / "safe-launch"
    with suppress(FileNotFoundError):  # no folder for temporary files can be written
        yield Path(tempfile.gettempdir()).absolute() / f"safe-launch-warm-{os.geteuid()}"


def folder() -> Path | None:
    """The folder for sockets, made if it is missing; None if it can't be."""
    for place in _places():
        with suppress(OSError):
            private_files.make_unshared(place)
            return place
    return None


def find(key: str = "") -> list[WarmServer]:
    """This user's servers, or those with a key; the one that ends last first."""
    servers: list[WarmServer] = []
    for place in _places():
        with suppress(OSError):
            if private_files.is_unshared(place):
                named = [WarmServer.at(place, path.name) for path in place.iterdir()]
                servers += [server for server in named if server and key in ("", server.key)]
    return sorted(servers, key=lambda server: server.until, reverse=True)


def is_here(pid: int) -> bool:
    """Whether a process sees the same files, processes and users: it is in no other container."""
    return [_link(str(pid), place) for place in PLACES] == [
        _link("self", place) for place in PLACES
    ]


def _link(process: str, place: str) -> str:
    with suppress(OSError):
        return str(Path("/proc", process, place).readlink())
    return ""


@cache
def boot() -> str:
    """An identifier of this host since its boot; empty if it can't be read."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return ""


def clock() -> float:
    """Seconds since the host's start, including those asleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
