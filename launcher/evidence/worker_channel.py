"""Messages from the workers of one host to their launcher, over a socket without a file.

The socket lives in Linux's abstract namespace: nothing is left in the temporary folder, and a full
disk doesn't swallow the evidence. A message is one line of JSON.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct

from ..checkpoints.checkpoint import Saves
from ..core.plain_json import plain
from ..core.settings import Value
from ..system import unix_socket
from .failure_record import FailureRecord

VARIABLE = "SAFE_LAUNCH_CHANNEL"
"""Environment variable with the socket's name, for the workers."""
WARM = "SAFE_LAUNCH_WARM"
"""Environment variable of the process that workers are forked from: the descriptor that it gets
its orders from, the launcher's process id, 1 where it is to import what the script imports, and the
variables that every worker has for itself."""
MAXIMUM = 16 * 1024 * 1024
"""Bytes after which a message without an end is given up."""


class FailureBegun(Struct, frozen=True, tag=True):
    """The worker fails; the record has what is known at once."""

    record: FailureRecord


class Failure(Struct, frozen=True, tag=True):
    """The evidence of a failure."""

    record: FailureRecord


class Finished(Struct, frozen=True, tag=True):
    """The script has run to its end."""


class Observed(Struct, frozen=True, tag=True):
    """Settings and facts seen in the worker, by name, after so many optimizer steps."""

    observed: Mapping[str, Value]
    step: int | None = None


class ModelShape(Struct, frozen=True, tag=True):
    """What the model is (`observations.shape_of`)."""

    shape: dict[str, Any]


class Imports(Struct, frozen=True, tag=True):
    """What the worker has imported by now (`extra_imports.Report`)."""

    report: dict[str, Any]


class SaveLocation(Struct, frozen=True, tag=True):
    """Where a Trainer saves."""

    saves: Saves


class Reexecution(Struct, frozen=True, tag=True):
    """The worker is re-executed: its script sets a variable that had been read before."""

    variable: str


Message = (
    FailureBegun | Failure | Finished | Observed | ModelShape | Imports | SaveLocation | Reexecution
)


class Envelope(Struct, frozen=True):
    """A message and the rank of the worker that sends it."""

    rank: int
    message: Message


def record_of(raw: Mapping[str, Any]) -> FailureRecord:
    """The record that `dataclasses.asdict` made `raw` from, after a passage through JSON.

    Raises:
        ValueError: it isn't one.
    """
    return msgspec.convert(raw, FailureRecord)


def encoded(rank: int, message: Message) -> bytes:
    """A worker's message as a line of JSON; by json, as texts may have halves of surrogates."""
    content = {"type": type(message).__name__, **msgspec.structs.asdict(message)}
    return json.dumps({"rank": rank, "message": content}, default=plain).encode() + b"\n"


def decoded(line: bytes) -> Envelope | None:
    """The message that a line is; None for one that no worker of ours has written."""
    try:
        return msgspec.convert(json.loads(line), Envelope)
    except (ValueError, RecursionError):
        return None


class Sender:
    """The worker's end; sending never raises, for the training matters more than the telling."""

    def __init__(self, name: str | None, rank: int) -> None:
        self._rank = rank
        # A bare descriptor: of a socket Python would warn at the script's end.
        self._descriptor: int | None = None
        if name:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            with suppress(OSError), connection:
                connection.connect("\0" + name)
                self._descriptor = connection.detach()

    def send(self, message: Message) -> None:
        """One message to the launcher."""
        if self._descriptor is None:
            return
        rest = memoryview(encoded(self._rank, message))
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            self._descriptor = None


@dataclass(slots=True)
class Receiver:
    """The launcher's end: a listening socket and the connections of the workers.

    Attributes:
        name: what the workers need to connect.
        listener: becomes readable when a worker connects.
        partial: what each connection has sent of a message that isn't complete.
    """

    name: str = field(default_factory=lambda: f"safe-launch-{secrets.token_hex(16)}")
    listener: socket.socket = field(
        default_factory=lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    )
    partial: dict[socket.socket, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.listener.bind("\0" + self.name)
        self.listener.listen(1024)
        self.listener.settimeout(0)

    def accept(self) -> socket.socket | None:
        """The next connection, or None where it belongs to another user."""
        accepted = unix_socket.accept(self.listener)
        if accepted is None:
            return None
        connection, _ = accepted
        connection.settimeout(0)
        self.partial[connection] = b""
        return connection

    def receive(self, connection: socket.socket) -> tuple[list[Envelope], bool]:
        """The complete messages that have come, and whether the connection is still open."""
        is_open = True
        try:
            while chunk := connection.recv(65536):
                self.partial[connection] += chunk
            is_open = False
        except BlockingIOError:
            pass
        except OSError:
            is_open = False
        *lines, rest = self.partial[connection].split(b"\n")
        self.partial[connection] = rest
        if not is_open or len(rest) > MAXIMUM:
            del self.partial[connection]
            connection.close()
            is_open = False
        return [found for line in lines if (found := decoded(line)) is not None], is_open

    def close(self) -> None:
        """Ends all connections."""
        self.listener.close()
        for connection in self.partial:
            connection.close()
