"""The messages between the launcher and the process that forks workers, for both ends.

A message is JSON text on a socket that preserves message boundaries; descriptors travel beside it.

The types are plain dataclasses and the codec is json, as modules imported here are still loaded in
the worker, whose script may need another version of them.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self, get_args

WARM = "SAFE_LAUNCH_WARM"
"""Environment variable that makes a worker's command line start the server; holds a `Start`."""
TARGET = 4
"""Index of the script or module in a worker's command line."""
LONGEST = 1 << 20
"""Bytes of a message at most."""


@dataclass(frozen=True, slots=True)
class Start:
    """The server's start message.

    Attributes:
        connection: the descriptor of its socket.
        launcher: the launcher's process id.
        does_import: whether the server preloads the script's imports.
        per_rank_variables: variables that differ between ranks.
        may_be_kept: whether a later launch may use the imports.
    """

    connection: int
    launcher: int
    does_import: bool
    per_rank_variables: Sequence[str]
    may_be_kept: bool

    def to_text(self) -> str:
        """The text of the environment variable."""
        return json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> Self:
        """Reads the variable and removes it, since workers inherit the environment."""
        return cls(**json.loads(os.environ.pop(WARM)))


@dataclass(frozen=True, slots=True)
class Launch:
    """A later launch for a kept server: how a server would be started for it.

    Attributes:
        environment: all variables.
        folder: the working directory.
        per_rank_variables: variables that differ between ranks.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    per_rank_variables: Sequence[str]


class _Message:
    """A message on the socket, with the names of its fields that are descriptors."""

    __slots__ = ()
    DESCRIPTORS: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True, slots=True)
class HostStore(_Message):
    """To the server: host a store for the workers that are requested next.

    Attributes:
        listener: the descriptor of the listening socket.
        line: the descriptor of a socket on which the host sends its error if it fails; the store
            ends when the socket is closed.
    """

    DESCRIPTORS = ("listener", "line")
    port: int
    listener: int
    line: int


@dataclass(frozen=True, slots=True)
class ForkWorker(_Message):
    """To the server: fork a worker, once all have been requested.

    Attributes:
        environment: its variables beyond the server's.
        remaining: how many workers are still to be requested.
    """

    DESCRIPTORS = ("stdout", "stderr")
    environment: Mapping[str, str]
    remaining: int
    stdout: int
    stderr: int


@dataclass(frozen=True, slots=True)
class MakeCopy(_Message):
    """To the server: fork a copy that repeats a worker's imports.

    Attributes:
        excluded_package: a package that the copy doesn't import.
        connection: the descriptor of the copy's socket.
        report: a descriptor of an `extra_imports.Report`, which is longer than a message.
    """

    DESCRIPTORS = ("connection", "report")
    excluded_package: str | None
    connection: int
    report: int


@dataclass(frozen=True, slots=True)
class Keep(_Message):
    """To the server: leave a copy of yourself for the next launch.

    Attributes:
        key: key that the next launch must share.
        seconds: how long the copy waits for it.
        leader: process id of the session's leader, with which the copy ends.
        folder: the folder for its socket.
    """

    key: str
    seconds: float
    leader: int
    folder: str


@dataclass(frozen=True, slots=True)
class TakeOver(_Message):
    """To a kept server: fork a server for this launch.

    Attributes:
        stdin: a descriptor of the launcher's.
        launch: a descriptor of a `Launch`, which is longer than a message.
    """

    DESCRIPTORS = ("stdin", "launch")
    stdin: int
    launch: int


@dataclass(frozen=True, slots=True)
class AskEnd(_Message):
    """To a server that is the workers' parent: how has this process of yours ended?"""

    pid: int


@dataclass(frozen=True, slots=True)
class HasEnded(_Message):
    """From a server that is the workers' parent.

    Attributes:
        code: the exit code, -N for signal N.
    """

    code: int


@dataclass(frozen=True, slots=True)
class Readiness(_Message):
    """From the server or its copy: whether workers can be forked from it.

    Attributes:
        problem: why not; None if they can.
    """

    problem: str | None


@dataclass(frozen=True, slots=True)
class Unshared(_Message):
    """From the server, which then ends: each worker has to do an import by itself.

    Attributes:
        reason: why, as a predicate.
    """

    package: str
    reason: str


@dataclass(frozen=True, slots=True)
class EnvironmentDiffers(_Message):
    """From the server or its copy: imports have read variables that differ in a worker."""

    variables: Sequence[str]


@dataclass(frozen=True, slots=True)
class WorkersForked(_Message):
    """From the server or its copy: the workers are running.

    Attributes:
        pids: their process ids, in the order in which they were requested.
        store_host: process id of the store's host; None without a store.
    """

    pids: Sequence[int]
    store_host: int | None


@dataclass(frozen=True, slots=True)
class Copied(_Message):
    """From the server: the copy is running; from a kept server's fork: it is the launch's own."""

    pid: int


Message = (
    HostStore
    | ForkWorker
    | MakeCopy
    | Keep
    | TakeOver
    | AskEnd
    | HasEnded
    | Readiness
    | Unshared
    | EnvironmentDiffers
    | WorkersForked
    | Copied
)
_KINDS: Mapping[str, Any] = {kind.__name__: kind for kind in get_args(Message)}


def send(connection: socket.socket, message: Message) -> None:
    """Sends a message with its descriptors, which stay open here.

    Raises:
        OSError: the other end is closed.
    """
    fields = asdict(message)
    descriptors = [fields.pop(name) for name in message.DESCRIPTORS]
    text = json.dumps([type(message).__name__, fields])
    socket.send_fds(connection, [text.encode()], descriptors)


def receive(connection: socket.socket) -> Message | None:
    """The next message, with its descriptors; None if the other end is closed.

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
