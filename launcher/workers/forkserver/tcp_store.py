"""The store through which the workers' process groups meet."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.errors import ExitCode, LaunchError

if TYPE_CHECKING:
    from torch.distributed import TCPStore


NO_TORCH = 2
"""The exit code of a host that can't import torch."""
LONGEST = 1 << 12
"""Bytes of a host's error message at most."""


@dataclass(slots=True)
class Store:
    """A port at which a `TCPStore` listens, or soon will; early clients wait.

    Every attempt needs a new store: the workers' keys have no prefix for the attempt
    (`_create_c10d_store` in torch/distributed/rendezvous.py).

    Attributes:
        listener: the listening socket.
        line: connects the launcher with the process that hosts the store, if that is another. If
            the host fails, it sends its error; when the socket is closed, store and host end.
    """

    listener: socket.socket
    line: tuple[socket.socket, socket.socket]
    _hosted: TCPStore | None = None

    @classmethod
    def open(cls, port: int = 0) -> Store:
        """Listens on all addresses, at the given port, or at a free one if that is taken or 0."""
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
        """The port's number."""
        return int(self.listener.getsockname()[1])

    @property
    def descriptors(self) -> tuple[int, int]:
        """Descriptors for another process to host the store: the port, its end of the line."""
        return self.listener.fileno(), self.line[1].fileno()

    def host(self) -> None:
        """Hosts the store in this process; imports torch.

        Raises:
            LaunchError: torch can't host it.
        """
        import_torch()
        try:
            self._hosted = store_at(self.port, os.dup(self.listener.fileno()))
        except Exception as error:
            raise store_error(one_line(error)) from error

    def failure(self, code: int) -> LaunchError:
        """The error for a host that has ended by itself, with this exit code, -N for signal N."""
        message = ""
        with suppress(BlockingIOError):
            message = self.line[0].recv(LONGEST, socket.MSG_DONTWAIT).decode(errors="replace")
        if code == NO_TORCH:
            return torch_error(message)
        if code < 0:
            return store_error(f"its process was ended by {signal.Signals(-code).name}")
        return store_error(message or f"its process ended with code {code}")

    def close(self) -> None:
        """Ends the store, wherever it is hosted."""
        self._hosted = None
        self.listener.close()
        for end in self.line:
            end.close()


def one_line(error: BaseException) -> str:
    """An exception as one line, with the one that it was raised from."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if error.__cause__ is None else f"{text} ({one_line(error.__cause__)})"


def import_torch() -> None:
    """Imports torch with elastic's multiprocessing.

    Raises:
        LaunchError: torch can't be imported.
    """
    try:
        from torch.distributed.elastic import multiprocessing  # noqa: F401
    except Exception as error:
        raise torch_error(one_line(error)) from error


def torch_error(reason: str) -> LaunchError:
    """The error if torch can't be imported."""
    hint = "`python -c 'import torch'` has to work; `safe-launch catalogue MESSAGE` may know more"
    return LaunchError(f"torch can't be imported: {reason}", hint)


def store_error(reason: str) -> LaunchError:
    """The error that ends a run whose store has failed."""
    problem = f"the workers' TCPStore has failed: {reason}"
    hint = "safe-launch hosts it: unless something outside has killed it, please report this"
    return LaunchError(problem, hint, code=ExitCode.INTERNAL)


def store_at(port: int, listener: int) -> TCPStore:
    """A store on a port that already listens.

    Libuv's, torch's default since 2.4, can't be given a port before 2.8 (`LibUVStoreDaemon` in
    torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp). The other backend's operations take twice
    as long with 512 clients, and sixty times with 4096 (1 ms each). USE_LIBUV is as for torchrun.

    The `listener`'s descriptor becomes the store's.
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
