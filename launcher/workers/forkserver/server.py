"""The process that workers are forked from: it has already imported what their script imports.

It is started with the command line of a worker, and becomes one in each fork: `serve` returns in a
worker alone, with the worker's environment, output and session. So the worker runs and ends as a
fresh interpreter does, finalization included, and `ps` shows the script's name.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from ...system import orphans
from ...workload.script.imports import Step
from . import extra_imports, preload
from .captured_output import CapturedOutput, text_of
from .fork_workers import COMM, Request, fork_workers
from .messages import (
    Copied,
    EnvironmentDiffers,
    ForkWorker,
    HostStore,
    MakeCopy,
    PerRankRead,
    Readiness,
    Start,
    receive,
    send,
)
from .preload import Preloaded

NATIVE = ("OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "LD_", "PYTHON", "MALLOC_")
"""Prefixes of variables that libraries read at load time, unseen by Python."""


@dataclass(frozen=True, slots=True)
class Warmth:
    """What a forked worker inherits from the server.

    Attributes:
        preloaded: what has been imported.
        is_first: whether the worker is the first of its attempt on this node.
    """

    preloaded: Preloaded
    is_first: bool


def serve(steps: Iterable[Step]) -> Warmth:
    """Preloads and forks workers until the launcher is gone.

    Args:
        steps: the script's first imports.

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
    preloaded = Preloaded(start.per_rank_variables)
    try:
        preloaded.run(steps if start.does_import else ())
    except preload.PerRankVariableRead as read:
        send(connection, PerRankRead(read.variable, read.package))
        os._exit(0)
    send(connection, Readiness(_prepare_to_fork()))
    while True:
        order = _receive_order(connection)
        if isinstance(order, MakeCopy):
            if copy := _make_copy(order, connection, output, preloaded):
                connection, output = copy
            continue
        if differing := _differing_variables(preloaded, order.workers):
            send(connection, EnvironmentDiffers(sorted(differing)))
        elif answer := fork_workers(order, connection, output, start.launcher):
            send(connection, answer)
        else:
            COMM.write_text(name)
            first = order.workers[0].environment["RANK"]
            return Warmth(preloaded, is_first=os.environ["RANK"] == first)
        order.close()


def _prepare_to_fork() -> str | None:
    """Prepares the process for forking; returns why it can't be forked, or None."""
    preload.release_nvml()
    # The collector never touches frozen objects, so their pages stay shared between workers.
    # A collection before that would take longer than it gains.
    gc.freeze()
    return next(preload.problems(), None)


def _receive_order(connection: socket.socket) -> Request | MakeCopy:
    """The launcher's next order; each worker is a message. Exits when the launcher has ended."""
    store: HostStore | None = None
    workers: list[ForkWorker] = []
    while True:
        match receive(connection):
            case HostStore() as store:
                pass
            case MakeCopy() as copy:
                return copy
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
    own_connection = socket.socket(fileno=order.connection)
    own_output = output.separate()
    report = extra_imports.Report.of(json.loads(text_of(order.report)))
    os.close(order.report)
    reason = extra_imports.follow(report, preloaded, order.excluded_package)
    problem = _prepare_to_fork()
    send(own_connection, Readiness(reason or problem))
    if reason or problem:
        os._exit(0)
    return own_connection, own_output


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
