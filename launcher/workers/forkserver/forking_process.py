"""The processes that fork workers, as the launcher sees them: states, connection, workers."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from ...system import orphans
from ...system.signals import SignalWakeup
from .messages import ForkWorker, HostStore, Message, receive, send
from .tcp_store import Store

Environments = Mapping[int, Mapping[str, str]]
"""Each worker's variables beyond the launcher's, by local rank."""
Streams = Mapping[int, Sequence[int]]
"""Descriptors for each worker's stdout and stderr, by local rank."""
FORK_SECONDS = 300.0
"""Seconds for forking workers; a first import of torch by the store's host is included."""


class State(StrEnum):
    """The process from which workers can be forked."""

    NONE = "none"
    """None: no process is running."""
    IMPORTING = "importing"
    """None yet: the server is running the script's imports."""
    READY = "ready"
    """The server."""
    COPY_IMPORTING = "copy importing"
    """The server; soon its copy, which is repeating a worker's later imports."""
    COPY_READY = "copy ready"
    """The copy."""
    COPY_REFUSED = "copy refused"
    """The server; no further copy is made."""


TRANSITIONS: Mapping[State, Set[State]] = {
    State.NONE: {State.NONE, State.IMPORTING},
    State.IMPORTING: {State.NONE, State.READY},
    State.READY: {State.NONE, State.COPY_IMPORTING},
    State.COPY_IMPORTING: {State.NONE, State.COPY_READY, State.COPY_REFUSED},
    State.COPY_READY: {State.NONE, State.COPY_REFUSED},
    State.COPY_REFUSED: {State.NONE},
}
"""The states that may follow each state; any state may end."""


@dataclass(frozen=True, slots=True)
class Forked:
    """Process ids of forked workers by local rank; they are this process's children."""

    by_local_rank: dict[int, int]

    def pids(self) -> dict[int, int]:
        """Process ids by local rank, as in elastic's contexts."""
        return self.by_local_rank

    def wait(self, _seconds: float) -> None:
        """Reaps the workers, all of which have ended."""
        for pid in self.by_local_rank.values():
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


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
        environments: Environments,
        streams: Streams,
        wakeup: SignalWakeup,
    ) -> Message | None:
        """Asks for workers; returns the answer, or None if none comes.

        Raises:
            StoppedError: a signal that ends the run has come.
        """
        remaining = len(environments)
        with suppress(OSError), orphans.subreaper():
            if store is not None:
                send(self.connection, HostStore(store.port, *store.descriptors))
            for local_rank, environment in environments.items():
                remaining -= 1
                stdout, stderr = streams[local_rank]
                send(self.connection, ForkWorker(environment, remaining, stdout, stderr))
            return self.answer(FORK_SECONDS, wakeup)
        return None
