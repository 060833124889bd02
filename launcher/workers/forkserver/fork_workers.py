"""Forks workers that become the launcher's own children, and the process that hosts their store."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Self

from ...system import orphans
from ...system.signals import REPORT, STOPS
from . import preload
from .messages import ForkWorker, HostStore, Readiness, WorkersForked
from .tcp_store import LONGEST, NO_TORCH, one_line, store_at

COMM = Path("/proc/self/comm")
"""The server's process name, in `top` and `ps -o comm`; its command line is a worker's."""
FAREWELL = 10.0
"""Seconds for workers to report why torch can't be imported, with their script's line."""
STREAMS = (1, 2)
"""The descriptors of stdout and stderr."""


@dataclass(frozen=True, slots=True)
class Request:
    """The processes to fork for an attempt.

    Attributes:
        store: a store to host in a further process; None for none.
        workers: in the order of their local ranks.
    """

    store: HostStore | None
    workers: Sequence[ForkWorker]

    def close(self) -> None:
        """Closes the descriptors that came with it."""
        for worker in self.workers:
            os.close(worker.stdout)
            os.close(worker.stderr)
        if self.store is not None:
            os.close(self.store.listener)
            os.close(self.store.line)


def fork_workers(
    request: Request, connection: socket.socket, output: CapturedOutput, parent: int
) -> WorkersForked | Readiness | None:
    """Forks the requested workers, and the host of their store.

    A child of this process forks the workers and ends at once. The kernel gives them to their
    nearest ancestor that is a subreaper, which can then wait for them: the launcher, or a server
    that it has taken over.

    That ancestor is `parent`, with which the forked processes die.

    Returns:
        None in a worker; elsewhere the answer to the launcher.
    """
    start_reader, start_writer = os.pipe()  # closing it lets the workers begin
    answer_reader, answer_writer = os.pipe()
    intermediate = os.fork()
    if intermediate:
        for descriptor in (start_reader, start_writer, answer_writer):
            os.close(descriptor)
        with os.fdopen(answer_reader) as stream:
            answer = stream.read()
        os.waitpid(intermediate, 0)
        if not answer:
            return Readiness("it can't fork workers")
        return WorkersForked(**json.loads(answer))
    intermediate, store_host = os.getpid(), None
    if request.store is not None:
        store_host = os.fork()
        if not store_host:
            for descriptor in (start_reader, start_writer, answer_reader, answer_writer):
                os.close(descriptor)
            connection.close()
            Request(None, request.workers).close()
            _die_with(parent, intermediate)
            _host_store(request.store)
    # Workers unblock them once they can answer, like those that the launcher starts itself.
    signal.pthread_sigmask(signal.SIG_BLOCK, (*STOPS, REPORT))
    pids = []
    for worker in request.workers:
        pid = os.fork()
        if not pid:
            os.close(start_writer)  # or the worker would wait for itself
            os.read(start_reader, 1)
            for descriptor in (start_reader, answer_reader, answer_writer):
                os.close(descriptor)
            connection.close()
            _die_with(parent, intermediate)
            _become_worker(worker, request, output)
            return None
        pids.append(pid)
    os.write(answer_writer, json.dumps({"pids": pids, "store_host": store_host}).encode())
    os._exit(0)  # the last process that holds `start_writer`


def _die_with(parent: int, intermediate: int) -> None:
    """Has the kernel kill this process when its coming parent ends, even without the guardian."""
    while os.getppid() == intermediate:
        time.sleep(0.001)
    orphans.die_with(parent, signal.SIGKILL)


def _host_store(store: HostStore) -> NoReturn:
    """Hosts a store in a separate process, since its threads wouldn't survive a fork.

    It may have to import torch first; clients that connect meanwhile wait.
    """
    code = 0
    try:
        os.setsid()
        COMM.write_text("warm-store")
        del sys.path[0]  # the script's folder, whose modules aren't ours
        try:
            import torch  # noqa: F401
        except BaseException:
            code = NO_TORCH
            select.select([store.line], [], [], FAREWELL)
            raise
        hosted = store_at(store.port, store.listener)
        os.read(store.line, 1)
        del hosted
    except BaseException as error:
        code = code or 1
        os.write(store.line, one_line(error).encode()[:LONGEST])
    finally:
        os._exit(code)  # neither exit handlers nor finalizers: those are the workers'


def _become_worker(worker: ForkWorker, request: Request, output: CapturedOutput) -> None:
    """Gives a forked worker the state of a fresh process under elastic."""
    os.setsid()
    for stream, target in zip((worker.stdout, worker.stderr), STREAMS, strict=True):
        os.dup2(stream, target)
    request.close()
    output.print()
    # The launcher ignores these signals while it starts the server, but not for workers.
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) is signal.SIG_IGN:  # else an import handles it
            signal.signal(number, signal.SIG_DFL)
    os.environ.update(worker.environment)
    preload.set_blas_threads()
    # Python reseeds its own generator after a fork, but not these.
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()
    if "multiprocessing.process" in sys.modules:
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)


@dataclass(frozen=True, slots=True)
class CapturedOutput:
    """Descriptors of two files in memory, in place of stdout and stderr."""

    files: tuple[int, ...]

    @classmethod
    def start(cls) -> Self:
        """Starts capturing."""
        return cls(tuple(_redirect(stream, b"") for stream in STREAMS))

    def separate(self) -> Self:
        """Continues in new files, after a fork that shares the old ones."""
        files = tuple(
            _redirect(stream, text_of(file))
            for stream, file in zip(STREAMS, self.files, strict=True)
        )
        for file in self.files:
            os.close(file)
        return type(self)(files)

    def print(self) -> None:
        """Writes the captured output to stdout and stderr, now the worker's."""
        for stream, file in zip(STREAMS, self.files, strict=True):
            text = text_of(file)
            os.close(file)
            while text:
                text = text[os.write(stream, text) :]


def text_of(file: int) -> bytes:
    """All that a file holds, regardless of its position."""
    return os.pread(file, os.fstat(file).st_size, 0)


def _redirect(stream: int, earlier: bytes) -> int:
    """Redirects the stream to a new file, which begins with the earlier output."""
    file = os.memfd_create("preloading")
    os.write(file, earlier)
    os.dup2(file, stream)
    return file
