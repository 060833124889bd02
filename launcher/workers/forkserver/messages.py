"""What the launcher and the process that forks workers say to each other, for both ends.

A message is a text of JSON on a socket that keeps messages apart; descriptors travel beside it.

The types are plain dataclasses and the codec is json's. A worker must begin without any module that
its script could want in another version, and what is imported here is still there in the worker.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self, get_args

WARM = "SAFE_LAUNCH_WARM"
"""Environment variable with which a worker's command line starts the server: a `Start`."""
LONGEST = 1 << 20
"""Bytes of a message."""


@dataclass(frozen=True, slots=True)
class Start:
    """What the server is told when it is started.

    Attributes:
        connection: the descriptor of its socket.
        launcher: the launcher's process id.
        does_import: it imports what the script imports.
        per_rank_variables: those that differ between ranks.
    """

    connection: int
    launcher: int
    does_import: bool
    per_rank_variables: Sequence[str]

    def to_text(self) -> str:
        """As the text of a variable."""
        return json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> Self:
        """Taken out of the environment, which the workers inherit."""
        return cls(**json.loads(os.environ.pop(WARM)))


class _Message:
    """What goes over the socket.

    Attributes:
        DESCRIPTORS: the fields that are descriptors.
    """

    __slots__ = ()
    DESCRIPTORS: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True, slots=True)
class HostStore(_Message):
    """To the server: host a store beside the workers that are asked for next.

    Attributes:
        port: its number.
        listener: the descriptor of the port.
        line: the descriptor of a socket whose end is the store's, and on which its host says what
            it dies of.
    """

    DESCRIPTORS = ("listener", "line")
    port: int
    listener: int
    line: int


@dataclass(frozen=True, slots=True)
class ForkWorker(_Message):
    """To the server: fork a worker, when all have been asked for.

    Attributes:
        environment: what it has beyond the server's.
        remaining: how many are still to be asked for.
        stdout: a descriptor.
        stderr: a descriptor.
    """

    DESCRIPTORS = ("stdout", "stderr")
    environment: Mapping[str, str]
    remaining: int
    stdout: int
    stderr: int


@dataclass(frozen=True, slots=True)
class MakeCopy(_Message):
    """To the server: make a copy of yourself that imports what a worker has imported.

    Attributes:
        excluded_package: one that the copy doesn't import.
        connection: the descriptor of the copy's socket.
        report: a descriptor of an `extra_imports.Report`, which is longer than a message.
    """

    DESCRIPTORS = ("connection", "report")
    excluded_package: str | None
    connection: int
    report: int


@dataclass(frozen=True, slots=True)
class Readiness(_Message):
    """From the server or its copy: whether workers can be forked from it.

    Attributes:
        problem: why not; None where they can.
    """

    problem: str | None


@dataclass(frozen=True, slots=True)
class PerRankRead(_Message):
    """From the server, which ends: an import looks up what differs between ranks.

    Attributes:
        variable: its name.
        package: the one that looks it up.
    """

    variable: str
    package: str


@dataclass(frozen=True, slots=True)
class EnvironmentDiffers(_Message):
    """From the server or its copy: imports have read variables that a worker has otherwise.

    Attributes:
        variables: their names.
    """

    variables: Sequence[str]


@dataclass(frozen=True, slots=True)
class WorkersForked(_Message):
    """From the server or its copy: the workers are there.

    Attributes:
        pids: their process ids, in the order in which they were asked for.
        store_host: process id of the store's host; None without a store.
    """

    pids: Sequence[int]
    store_host: int | None


@dataclass(frozen=True, slots=True)
class Copied(_Message):
    """From the server: the copy is there, and imports.

    Attributes:
        pid: its process id.
    """

    pid: int


Message = (
    HostStore
    | ForkWorker
    | MakeCopy
    | Readiness
    | PerRankRead
    | EnvironmentDiffers
    | WorkersForked
    | Copied
)
_KINDS: Mapping[str, Any] = {kind.__name__: kind for kind in get_args(Message)}


def send(connection: socket.socket, message: Message) -> None:
    """Sends a message with its descriptors, which stay open here.

    Raises:
        OSError: nobody is at the other end.
    """
    fields = asdict(message)
    descriptors = [fields.pop(name) for name in message.DESCRIPTORS]
    text = json.dumps([type(message).__name__, fields])
    socket.send_fds(connection, [text.encode()], descriptors)


def receive(connection: socket.socket) -> Message | None:
    """The next message, with descriptors that are this process's own; None where the other ended.

    Raises:
        OSError: the connection is broken.
    """
    text, descriptors, _, _ = socket.recv_fds(connection, LONGEST, 2)
    if not text:
        return None
    name, fields = json.loads(text)
    kind = _KINDS[name]
    message: Message = kind(**fields, **dict(zip(kind.DESCRIPTORS, descriptors, strict=True)))
    return message
