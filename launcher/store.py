"""The store that the workers' process groups meet at."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.distributed import TCPStore


@dataclass(slots=True)
class Store:
    """A port of this host at which a `TCPStore` is, or soon will be; who comes early has to wait.

    Every attempt needs one of its own: the workers' keys have no prefix for the attempt
    (`_create_c10d_store` in torch/distributed/rendezvous.py).

    Attributes:
        listener: the port.
        alive: a pipe that nobody writes to: it ends with the store, and a host of it as well.
    """

    listener: socket.socket
    alive: tuple[int, int]
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
        return cls(listener, os.pipe())

    @property
    def port(self) -> int:
        """Its number."""
        return int(self.listener.getsockname()[1])

    @property
    def descriptors(self) -> tuple[int, int]:
        """What another process needs to host it: the port, and the end of the pipe to read."""
        return self.listener.fileno(), self.alive[0]

    def host(self) -> None:
        """Hosts it in this process, which takes the import of torch."""
        self._hosted = hosted(self.port, os.dup(self.listener.fileno()))

    def close(self) -> None:
        """Ends it, wherever it is hosted."""
        self._hosted = None
        self.listener.close()
        for end in self.alive:
            os.close(end)


def hosted(port: int, listener: int) -> TCPStore:
    """A store at a port that is listened to already.

    Args:
        port: its number.
        listener: the descriptor, which becomes the store's.
    """
    from torch.distributed import TCPStore

    return TCPStore(
        "localhost", port, is_master=True, wait_for_workers=False, master_listen_fd=listener
    )
