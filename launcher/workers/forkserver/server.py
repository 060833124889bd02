"""The process from which workers are forked: it has already done the imports of their script.

It starts with the command line of a worker, and becomes one in each fork: `serve` returns only in a
worker, with the worker's environment, output and session. So the worker runs and ends like a fresh
interpreter, including finalization, and `ps` shows the script's name.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import select
import signal
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ...system import orphans
from ...workload.script.imports import Step
from . import extra_imports, preload
from .fork_workers import COMM, CapturedOutput, Request, fork_workers, text_of
from .import_trace import ImportTrace
from .keeper import Keepable, keep
from .messages import (
    AskEnd,
    Copied,
    EnvironmentDiffers,
    ForkWorker,
    HasEnded,
    HostStore,
    Keep,
    MakeCopy,
    Readiness,
    Start,
    Unshared,
    receive,
    send,
)
from .preload import Preloaded

NATIVE = ("OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "LD_", "PYTHON", "MALLOC_")
"""Prefixes of variables that libraries read at load time, unseen by Python."""
IDLE = 1.0
"""Seconds without an order after which memory for orders is given back."""
_MADV_DONTNEED = 4
_HEAD = re.compile(r"(?P<start>[0-9a-f]+)-(?P<end>[0-9a-f]+) .-.. \S+ \S+ [1-9]\d*\b")
"""The head of a mapping of a file that isn't written to, in /proc/PID/smaps (proc(5))."""
_UNCHANGED = "Anonymous:             0 kB"


@dataclass(frozen=True, slots=True)
class Warmth:
    """State that a forked worker inherits from the server.

    Attributes:
        is_first: whether the worker is the first of its attempt on this node.
    """

    preloaded: Preloaded
    is_first: bool


def serve(steps_of: Callable[[], Iterable[Step]]) -> Warmth:
    """Preloads and forks workers until the launcher is gone.

    Returns:
        Only in a forked worker.
    """
    start = Start.from_environment()
    orphans.die_with(start.launcher, signal.SIGKILL)
    connection = socket.socket(fileno=start.connection)
    os.set_inheritable(connection.fileno(), False)
    name = COMM.read_text().rstrip("\n")
    COMM.write_text("warm-server")
    output = CapturedOutput.start()
    kept = Keepable(Preloaded(start.per_rank_variables), ImportTrace(), steps_of, None)
    try:
        _import(start, kept)
    except preload.UnsharedImport as unshared:
        send(connection, Unshared(unshared.package, unshared.reason))
        os._exit(0)
    send(connection, Readiness(preload.prepare_to_fork()))
    parent = start.launcher  # of the workers
    while True:
        match _receive_order(connection):
            case MakeCopy() as order:
                if copy := _make_copy(order, connection, output, kept.preloaded):
                    connection, output = copy
            case Keep() as order:
                if taken := keep(order, connection, output, kept):
                    connection, output = taken
                    parent = os.getpid()
            case AskEnd(pid=pid):
                send(connection, HasEnded(orphans.exit_code(pid)))
            case Request() as order:
                if parent == os.getpid():
                    orphans.reap_children()  # the workers of the attempt before
                if differing := _differing_variables(kept.preloaded, order.workers):
                    send(connection, EnvironmentDiffers(sorted(differing)))
                elif answer := fork_workers(order, connection, output, parent):
                    send(connection, answer)
                else:
                    COMM.write_text(name)
                    first = order.workers[0].environment["RANK"]
                    return Warmth(kept.preloaded, is_first=os.environ["RANK"] == first)
                order.close()


def _import(start: Start, kept: Keepable) -> None:
    """Does the script's first imports; traces them if a later launch may use them.

    Raises:
        UnsharedImport: each worker has to do an import by itself.
    """
    begun = time.time_ns()
    steps = kept.steps_of() if start.does_import else ()
    if start.may_be_kept:
        kept.trace.watch()
        steps = kept.trace.during(steps)
    kept.preloaded.run(steps)
    kept.refused = kept.trace.settle(begun) if start.may_be_kept else None
    if not kept.preloaded.steps:
        kept.refused = "it has imported nothing"


def _receive_order(connection: socket.socket) -> Request | MakeCopy | Keep | AskEnd:
    """The launcher's next order; each worker is a message. Exits when the launcher has ended."""
    store: HostStore | None = None
    workers: list[ForkWorker] = []
    if not select.select([connection], [], [], IDLE)[0]:
        release_pages()
    while True:
        match receive(connection):
            case HostStore() as store:
                pass
            case MakeCopy() | Keep() | AskEnd() as order:
                return order
            case ForkWorker() as worker:
                workers.append(worker)
                if not worker.remaining:
                    return Request(store, workers)
            case _:
                os._exit(0)


def _make_copy(
    order: MakeCopy, connection: socket.socket, output: CapturedOutput, preloaded: Preloaded
) -> tuple[socket.socket, CapturedOutput] | None:
    """Makes a copy of this process that has imported more.

    Returns:
        In the copy, its connection and captured output; None in this process. A copy that can't
        be used exits.
    """
    original = os.getpid()
    pid = os.fork()
    if pid:
        os.close(order.connection)
        os.close(order.report)
        send(connection, Copied(pid))
        return None
    orphans.die_with(original, signal.SIGKILL)
    connection.close()
    copy_connection = socket.socket(fileno=order.connection)
    copy_output = output.separate()
    report = extra_imports.Report.of(json.loads(text_of(order.report)))
    os.close(order.report)
    reason = extra_imports.follow(report, preloaded, order.excluded_package)
    problem = preload.prepare_to_fork()
    send(copy_connection, Readiness(reason or problem))
    if reason or problem:
        os._exit(0)
    return copy_connection, copy_output


def _differing_variables(preloaded: Preloaded, workers: Iterable[ForkWorker]) -> set[str]:
    """Variables that the imports have read and that differ in a worker."""
    read = preloaded.reads.keys() | preloaded.late_reads
    return {
        name
        for worker in workers
        for name, value in worker.environment.items()
        if preloaded.environment.get(name) != value
        and (name in read or name.startswith(NATIVE) or name.endswith("ALLOC_CONF"))
    }


def release_pages() -> None:
    """Gives back the pages of libraries that this process has mapped and not changed.

    They stay in the page cache, and return one by one on use; torch's libraries have 90 MiB.
    Mappings with relocations differ from the file, and are left alone.
    """
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    head: re.Match[str] | None = None
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line[0] in "0123456789abcdef":
            head = _HEAD.match(line)
        elif head and line == _UNCHANGED:
            start = int(head["start"], 16)
            libc.madvise(start, int(head["end"], 16) - start, _MADV_DONTNEED)
