"""The store that the workers' process groups meet at."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.errors import ExitCode, LaunchError

if TYPE_CHECKING:
    from torch.distributed import TCPStore


LAST_WORDS = 1 << 12
"""Bytes of what a host says of its end."""


@dataclass(slots=True)
class Store:
    """A port of this host at which a `TCPStore` is, or soon will be; who comes early has to wait.

    Every attempt needs one of its own: the workers' keys have no prefix for the attempt
    (`_create_c10d_store` in torch/distributed/rendezvous.py).

    Attributes:
        listener: the port.
        line: between the launcher and another process that hosts it. Its end is the store's, and
            the host's; the host says on it what it dies of.
    """

    listener: socket.socket
    line: tuple[socket.socket, socket.socket]
    _hosted: TCPStore | None = None

    @classmethod
    def open(cls, port: int = 0) -> Store:
        """On all addresses, at a port that is free where the one asked for isn't, or is 0."""
        family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
        both = family == socket.AF_INET6
        options: Any = {"family": family, "backlog": 2048, "dualstack_ipv6": both}
        try:
            listener = socket.create_server(("", port), **options)
        except OSError:
            listener = socket.create_server(("", 0), **options)
        return cls(listener, socket.socketpair())

    @property
    def port(self) -> int:
        """Its number."""
        return int(self.listener.getsockname()[1])

    @property
    def descriptors(self) -> tuple[int, int]:
        """What another process needs to host it: the port, and its end of the line."""
        return self.listener.fileno(), self.line[1].fileno()

    def host(self) -> None:
        """Hosts it in this process, which takes the import of torch.

        Raises:
            LaunchError: torch can't.
        """
        try:
            self._hosted = hosted(self.port, os.dup(self.listener.fileno()))
        except Exception as error:
            raise failed(described(error)) from error

    def last_words(self) -> str | None:
        """What another process that hosted it has died of; None where it hasn't said."""
        with suppress(BlockingIOError):
            return self.line[0].recv(LAST_WORDS, socket.MSG_DONTWAIT).decode(errors="replace")
        return None

    def close(self) -> None:
        """Ends it, wherever it is hosted."""
        self._hosted = None
        self.listener.close()
        for end in self.line:
            end.close()


def described(error: BaseException) -> str:
    """An exception in a line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def failed(reason: str) -> LaunchError:
    """The end of a run whose workers have no store."""
    problem = f"the store that the workers meet at has failed: {reason}"
    hint = (
        "safe-launch hosts it with torch's TCPStore: unless something outside has killed it, "
        "or this torch can't be imported, please report this"
    )
    return LaunchError(ExitCode.INTERNAL, problem, hint)


def hosted(port: int, listener: int) -> TCPStore:
    """A store at a port that is listened to already.

    Libuv's, torch's default since 2.4, can't be given a port before 2.8 (`LibUVStoreDaemon` in
    torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp). The other one's operations are twice as
    slow with 512 clients, sixty times with 4096, a millisecond each. USE_LIBUV is as for torchrun.

    Args:
        port: its number.
        listener: the descriptor, which becomes the store's.
    """
    import torch
    from torch.distributed import TCPStore

    return TCPStore(
        "localhost",
        port,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listener,
        use_libuv=torch.__version__ >= (2, 8) and os.environ.get("USE_LIBUV", "1") == "1",
    )
