"""Messages from the workers of one host to their launcher, over a socket without a file.

The socket lives in Linux's abstract namespace: nothing is left in the temporary folder, and a full
disk doesn't swallow the evidence. A message is one line of JSON.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..checkpoints.checkpoint import Saves
from ..core.settings import Value
from .failure_record import FailureRecord

VARIABLE = "SAFE_LAUNCH_CHANNEL"
"""Environment variable with the socket's name, for the workers."""
MAXIMUM = 16 * 1024 * 1024
"""Bytes after which a message without an end is given up."""


@dataclass(frozen=True, slots=True)
class Message:
    """What a worker says; which of the fields are given depends on its kind.

    Attributes:
        kind: `failing`, `failed`, `finished`, `observed`, `model`, `imported`, `saves` or `afresh`.
        rank: whose it is.
        record: the evidence of a failure; of one that is `failing`, what is known of it at once.
        observed: settings and facts seen in the worker, by name.
        step: optimizer steps done.
        shape: what the model is.
        imported: what the worker has imported by then (`later_imports.Report`).
        saves: where a Trainer saves.
        variable: what the script has set after it was read, so that the worker begins once more.
    """

    kind: str
    rank: int
    record: FailureRecord | None = None
    observed: Mapping[str, Value] = field(default_factory=dict)
    step: int | None = None
    shape: dict[str, Any] | None = None
    imported: dict[str, Any] | None = None
    saves: Saves | None = None
    variable: str = ""


def record_of(raw: Mapping[str, Any]) -> FailureRecord:
    """The record that `dataclasses.asdict` made `raw` from, after a passage through JSON.

    Raises:
        ValueError: it isn't one.
    """
    import msgspec

    record: FailureRecord = msgspec.convert(raw, FailureRecord)
    return record


def message_of(line: bytes) -> Message | None:
    """The message that a line is; None for one that no worker of ours has written."""
    import msgspec

    try:
        message: Message = msgspec.convert(json.loads(line), Message)
    except (ValueError, RecursionError):
        return None
    return message


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

    def send(self, kind: str, content: Mapping[str, Any]) -> None:
        """One message to the launcher."""
        if self._descriptor is None:
            return
        line = json.dumps({"kind": kind, "rank": self._rank, **content}, default=str) + "\n"
        rest = memoryview(line.encode())
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
        self.listener.setblocking(False)

    def accept(self) -> socket.socket | None:
        """The next connection, or None where it belongs to another user."""
        connection, _ = self.listener.accept()
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        _, user, _ = struct.unpack("iII", credentials)
        if user != os.getuid():
            connection.close()
            return None
        connection.setblocking(False)
        self.partial[connection] = b""
        return connection

    def receive(self, connection: socket.socket) -> tuple[list[Message], bool]:
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
        return [one for line in lines if (one := message_of(line)) is not None], is_open

    def close(self) -> None:
        """Ends all connections."""
        self.listener.close()
        for connection in self.partial:
            connection.close()
