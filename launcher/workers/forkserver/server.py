"""The process that workers are forked from: it has imported what their script is going to import.

It is started with the command line of a worker, and becomes one in each fork: `serve` returns in a
worker alone, with the worker's environment, output and session. So the worker runs and ends as a
fresh interpreter does, finalization included, and `ps` shows the script's name.

Its parent, the launcher, talks with it over a socket that keeps messages apart: JSON, each order
for a worker with the two descriptors of its output.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ...evidence.worker_channel import WARM
from ...system import orphans
from ...workload.script.imports import Step
from . import extra_imports, preload
from .tcp_store import LONGEST as LAST_WORDS
from .tcp_store import described, hosted

LONGEST = 1 << 20
"""Bytes of a message."""
NATIVE = ("OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "LD_", "PYTHON", "MALLOC_")
"""Beginnings of variables that libraries read when they are loaded, unseen by Python."""
COMM = Path("/proc/self/comm")
"""A process's name, in `top` and `ps -o comm`; its command line is a worker's."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """A store to host.

    Attributes:
        port: its port's number.
        listener: the descriptor of the port.
        line: the descriptor of a socket whose end is the store's, and on which its host says what
            it dies of.
    """

    port: int
    listener: int
    line: int


@dataclass(frozen=True, slots=True)
class Order:
    """One worker to fork.

    Attributes:
        environment: what it has beyond the server's.
        streams: descriptors of its stdout and stderr.
    """

    environment: Mapping[str, str]
    streams: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Extension:
    """A copy of this process to make, which imports more and then serves too.

    Attributes:
        connection: descriptor of its own socket.
        report: a descriptor with what a worker has imported.
        without: a package that the copy doesn't import.
    """

    connection: int
    report: int
    without: str | None


@dataclass(frozen=True, slots=True)
class Warmth:
    """What a forked worker has from its server.

    Attributes:
        preloaded: what has been imported.
        is_first: the worker is the first of those that were forked together.
    """

    preloaded: preload.Preloaded
    is_first: bool


def serve(steps: Iterable[Step]) -> Warmth:
    """Preloads and forks workers until the launcher is gone.

    Args:
        steps: what the script will do first.

    Returns:
        In a forked worker alone.
    """
    descriptor, launcher, imports, own = os.environ.pop(WARM).split(":")
    orphans.die_with(int(launcher), signal.SIGKILL)
    connection = socket.socket(fileno=int(descriptor))
    os.set_inheritable(connection.fileno(), False)
    name = COMM.read_text().rstrip("\n")
    COMM.write_text("warm-server")
    noise = tuple(_capture(stream, b"") for stream in (1, 2))
    preloaded = preload.Preloaded(own=own.split(","))
    try:
        preloaded.run(steps if int(imports) else ())
    except preload.OwnError as found:
        _send(connection, own=found.name, reader=found.reader)
        os._exit(0)
    preload.release_nvml()
    gc.freeze()  # without looking for cycles first, which takes longer than it gains
    _send(connection, problem=preload.problem())
    while True:
        told = _orders(connection)
        if isinstance(told, Extension):
            if copy := _copied(told, connection, noise, preloaded):
                connection, noise = copy
            continue
        meeting, orders = told
        clash = sorted(_clash(preloaded, orders))
        answer = {"clash": clash} if clash else _forked(meeting, orders, connection, noise)
        if answer is None:
            COMM.write_text(name)
            return Warmth(preloaded, os.environ["RANK"] == orders[0].environment["RANK"])
        _close(meeting, orders)
        _send(connection, **answer)


def _capture(stream: int, earlier: bytes) -> int:
    """Sends a stream into memory; what imports print there is shown by every worker anew."""
    memory = os.memfd_create("preloading")
    os.write(memory, earlier)
    os.dup2(memory, stream)
    return memory


def _text(memory: int) -> bytes:
    return os.pread(memory, os.fstat(memory).st_size, 0)


def _copied(
    extension: Extension,
    connection: socket.socket,
    noise: tuple[int, ...],
    preloaded: preload.Preloaded,
) -> tuple[socket.socket, tuple[int, ...]] | None:
    """Makes a copy of this process that has imported more.

    Returns:
        In the copy, its connection and captured streams; None in this process. A copy that can't
        be used ends.
    """
    original = os.getpid()
    pid = os.fork()
    if pid:
        os.close(extension.connection)
        os.close(extension.report)
        _send(connection, copy=pid)
        return None
    orphans.die_with(original, signal.SIGKILL)
    connection.close()
    own = socket.socket(fileno=extension.connection)
    copies = tuple(
        _capture(stream, _text(memory)) for stream, memory in zip((1, 2), noise, strict=True)
    )
    report = extra_imports.Report(**json.loads(_text(extension.report)))
    for memory in (*noise, extension.report):
        os.close(memory)
    problem = extra_imports.follow(report, preloaded, extension.without)
    preload.release_nvml()
    gc.freeze()
    problem = problem or preload.problem()
    _send(own, problem=problem)
    if problem is not None:
        os._exit(0)
    return own, copies


def _send(connection: socket.socket, **content: Any) -> None:
    connection.send(json.dumps(content).encode())


def _orders(connection: socket.socket) -> tuple[Meeting | None, list[Order]] | Extension:
    """The store to host, if any, and the workers to fork; or a copy to make.

    Ends with the launcher. Each message says how many are to follow.
    """
    meeting: Meeting | None = None
    orders: list[Order] = []
    following = 1
    while following:
        message, descriptors, _, _ = socket.recv_fds(connection, LONGEST, 2)
        if not message:
            os._exit(0)
        content = json.loads(message)
        first, second = descriptors
        if "without" in content:
            return Extension(first, second, content["without"])
        if "port" in content:
            meeting = Meeting(content["port"], first, second)
        else:
            orders.append(Order(content["environment"], (first, second)))
            following = content["following"]
    return meeting, orders


def _keep(meeting: Meeting) -> NoReturn:
    """Hosts a store in a process of its own, since its threads wouldn't come along in a fork.

    That may take the import of torch; who connects meanwhile has to wait.
    """
    code = 0
    try:
        os.setsid()
        COMM.write_text("warm-store")
        store = hosted(meeting.port, meeting.listener)
        os.read(meeting.line, 1)
        del store
    except BaseException as error:
        code = 1
        os.write(meeting.line, described(error).encode()[:LAST_WORDS])
    finally:
        os._exit(code)


def _clash(preloaded: preload.Preloaded, orders: list[Order]) -> set[str]:
    """Variables that the imports have read and that a worker has otherwise."""
    read = preloaded.reads.keys() | preloaded.late
    return {
        name
        for order in orders
        for name, value in order.environment.items()
        if preloaded.start.get(name) != value
        and (name in read or name.startswith(NATIVE) or name.endswith("ALLOC_CONF"))
    }


def _close(meeting: Meeting | None, orders: list[Order]) -> None:
    for order in orders:
        for stream in order.streams:
            os.close(stream)
    if meeting is not None:
        os.close(meeting.listener)
        os.close(meeting.line)


def _forked(
    meeting: Meeting | None,
    orders: list[Order],
    connection: socket.socket,
    noise: tuple[int, ...],
) -> dict[str, Any] | None:
    """The process ids of the workers, and of the store's host if there is one to be.

    They are forked by a child of the server that ends at once, so that they become the launcher's
    own children, which it can wait for. The workers begin when that child is gone.

    Returns:
        None in a worker.
    """
    gate, hold = os.pipe()
    told, tell = os.pipe()
    middle = os.fork()
    if middle:
        for descriptor in (gate, hold, tell):
            os.close(descriptor)
        with os.fdopen(told) as stream:
            answer = json.loads(stream.read() or "{}")
        os.waitpid(middle, 0)
        return dict(answer)
    keeper = None
    if meeting is not None:
        keeper = os.fork()
        if not keeper:
            for descriptor in (gate, hold, told, tell):
                os.close(descriptor)
            connection.close()
            _close(None, orders)
            _keep(meeting)
    pids = []
    for order in orders:
        pid = os.fork()
        if not pid:
            os.close(hold)
            os.read(gate, 1)
            for descriptor in (gate, told, tell):
                os.close(descriptor)
            connection.close()
            _become_worker(order, meeting, orders, noise)
            return None
        pids.append(pid)
    os.write(tell, json.dumps({"pids": pids, "keeper": keeper}).encode())
    os._exit(0)


def _become_worker(
    order: Order, meeting: Meeting | None, orders: list[Order], noise: tuple[int, ...]
) -> None:
    """Takes on what elastic gives a fresh process, and what two fresh processes don't share."""
    os.setsid()
    for stream, target in zip(order.streams, (1, 2), strict=True):
        os.dup2(stream, target)
    _close(meeting, orders)
    for memory, target in zip(noise, (1, 2), strict=True):
        text = _text(memory)
        os.close(memory)
        while text:
            text = text[os.write(target, text) :]
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    os.environ.update(order.environment)
    preload.set_blas_threads()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()
    if "multiprocessing.process" in sys.modules:
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)
