"""The launcher's end of the workers' channel, which checks messages' types."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import get_args

import msgspec

from ..checks.between_ranks import Compared
from ..system.event_loop import EventLoop
from ..system.redaction import redacted
from ..system.unix_sockets import at_folder
from .worker_messages import (
    Ask,
    Failure,
    FailureBegun,
    Found,
    Message,
    ModelShape,
    Observed,
    Remark,
    Skipped,
)

MAXIMUM = 16 * 1024 * 1024
"""Maximum bytes of a message."""
NAME = "launcher"
"""Name of the socket in its folder."""
KINDS: Mapping[str, type[Message]] = {kind.__name__: kind for kind in get_args(Message)}
REDACTED = (FailureBegun, Failure, Observed, ModelShape, Remark, Compared, Found, Skipped)
"""Messages whose texts are printed, written and sent to other nodes, without secrets."""
REDACTED_FIELDS = ("frame", "shape")
"""Fields of a question with the user's texts, also without secrets."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message and the rank of the worker that sent it."""

    rank: int
    message: Message


Hear = Callable[[Envelope, socket.socket], None]
"""Called with a message and the connection of its worker."""


def decoded(line: bytes) -> Envelope | None:
    """Decodes a message; None if invalid."""
    try:
        content = json.loads(line)
        kind = KINDS[content["kind"]]
        message = content["message"]
        if kind in REDACTED:
            message = json.loads(redacted(line.decode()))["message"]
        if kind is Ask:  # by its key the worker finds the answer, even if it looks like a secret
            texts = {name: message.get(name) for name in REDACTED_FIELDS}
            message |= json.loads(redacted(json.dumps(texts)))
        return Envelope(msgspec.convert(content["rank"], int), msgspec.convert(message, kind))
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


class Receiver:
    """The launcher's end: a listening socket and the connections of the workers.

    Attributes:
        folder: the socket's folder; every user who can enter it can connect.
        listener: becomes readable when a worker connects.
        partial: the incomplete message of each connection.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.partial: dict[socket.socket, bytes] = {}
        with at_folder(folder, NAME) as path:
            self.listener.bind(path)
        self.listener.listen(1024)
        self.listener.settimeout(0)

    @property
    def path(self) -> str:
        """The address for workers to connect to."""
        return str(self.folder / NAME)

    def accept(self) -> socket.socket:
        """The next connection.

        Raises:
            BlockingIOError: no connection is waiting.
        """
        connection, _ = self.listener.accept()
        connection.settimeout(0)
        self.partial[connection] = b""
        return connection

    def receive(self, connection: socket.socket) -> tuple[list[Envelope], bool]:
        """The complete messages received, and whether the connection is still open."""
        is_open = False
        try:
            while chunk := connection.recv(65536):
                self.partial[connection] += chunk
        except BlockingIOError:
            is_open = True
        except OSError:
            pass
        *lines, rest = self.partial[connection].split(b"\n")
        self.partial[connection] = rest
        if not is_open or len(rest) > MAXIMUM:
            del self.partial[connection]
            connection.close()
            is_open = False
        return [envelope for line in lines if (envelope := decoded(line)) is not None], is_open

    def listen(self, loop: EventLoop, hear: Hear) -> Callable[[], None]:
        """Has a loop hand over every message as it comes, with its worker's connection.

        A fast worker may have ended once it is accepted. Its death is seen at the same time, and
        its last messages must be read before it is judged.

        Returns:
            Hands over what has come since the loop's last turn.
        """

        def accept() -> None:
            with suppress(BlockingIOError):
                while True:
                    connection = self.accept()
                    loop.on_readable(connection, partial(read, connection))
                    read(connection)

        def read(connection: socket.socket) -> None:
            descriptor = connection.fileno()
            envelopes, is_open = self.receive(connection)
            if not is_open:
                loop.forget(descriptor)
            for envelope in envelopes:
                hear(envelope, connection)

        def read_rest() -> None:
            for connection in list(self.partial):
                read(connection)

        loop.on_readable(self.listener, accept)
        return read_rest

    def close(self) -> None:
        """Closes all connections."""
        self.listener.close()
        for connection in self.partial:
            connection.close()
