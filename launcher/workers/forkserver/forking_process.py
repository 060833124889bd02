"""The launcher's end of the connection to a process that forks workers."""

from __future__ import annotations

import select
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ...system import children
from ...system.signals import SignalWakeup
from .messages import ForkWorker, HostStore, Message, receive, send
from .tcp_store import Store

FORK_SECONDS = 300.0
"""Seconds for forking workers; a first import of torch by the store's host is included."""


@dataclass(frozen=True, slots=True)
class ForkingProcess:
    """The server, or its copy.

    Attributes:
        connection: a socket that preserves message boundaries.
    """

    pid: int
    connection: socket.socket

    def answer(self, seconds: float, wakeup: SignalWakeup) -> Message | None:
        """Its next message; None if it has ended, or sends nothing in the given seconds.

        Raises:
            StoppedError: a signal that ends the run has come before.
        """
        if wakeup.wait_for(self.connection, seconds):
            with suppress(OSError):
                return receive(self.connection)
        return None

    def ask(self, message: Message, seconds: float) -> Message | None:
        """Its answer to a message, regardless of signals; None if none comes in time."""
        with suppress(OSError):
            send(self.connection, message)
            if select.select([self.connection], [], [], seconds)[0]:
                return receive(self.connection)
        return None

    def fork(
        self,
        store: Store | None,
        environments: Mapping[int, Mapping[str, str]],
        streams: Mapping[int, Sequence[int]],
        wakeup: SignalWakeup,
    ) -> Message | None:
        """Asks for workers; returns the answer, or None if none comes.

        Raises:
            StoppedError: a signal that ends the run has come.
        """
        remaining = len(environments)
        with suppress(OSError), children.subreaper():
            if store is not None:
                send(self.connection, HostStore(store.port, *store.descriptors))
            for local_rank, environment in environments.items():
                remaining -= 1
                stdout, stderr = streams[local_rank]
                send(self.connection, ForkWorker(environment, remaining, stdout, stderr))
            return self.answer(FORK_SECONDS, wakeup)
        return None
