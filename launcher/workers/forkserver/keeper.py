"""A copy of the server that outlives its launch, and forks the server of a later launch.

It only forks a process for each launch that asks, which checks whether the imports are still right
for that launch. So the copy itself stays as it was after the imports. They are right if a fresh
interpreter would import the same: the files are unchanged, the script begins with the same imports,
and the environment is equal. The server's key covers all else (`handover.warm_key`).
"""

from __future__ import annotations

import errno
import importlib
import json
import math
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ...core.errors import reason_of
from ...machine import host
from ...system import orphans
from ...system.unix_sockets import peer
from ...workload.script.imports import Step
from . import preload
from .fork_workers import CapturedOutput, text_of
from .import_trace import ImportTrace
from .messages import (
    TARGET,
    Copied,
    Keep,
    Launch,
    Message,
    Readiness,
    TakeOver,
    Unshared,
    receive,
    send,
)
from .preload import Preloaded
from .warm_servers import WarmServer, clock, is_here

CHECK = 5.0
"""Seconds between looks at the free memory."""
LONGEST = 7 * 86400.0
"""Seconds that a kept server waits at most: a week."""
LEAST_FREE = 0.1
"""The share of memory that must be free; with less, a kept server ends."""
PATIENCE = 10.0
"""Seconds for the launcher's order after it has connected."""
OF_THE_SHELL = frozenset({"_", "OLDPWD", "SHLVL", orphans.VARIABLE})
"""Variables that differ between launches and don't affect imports."""


def keep(
    order: Keep, connection: socket.socket, output: CapturedOutput, kept: Keepable
) -> tuple[socket.socket, CapturedOutput] | None:
    """Leaves a copy of this process for the next launches.

    Returns:
        None in this process; in a process that belongs to a later launch, its connection to that
        launch, and its captured output.
    """
    if kept.refused is not None:
        send(connection, Readiness(kept.refused))
        return None
    try:
        if not _detached():
            return None
    except OSError as error:
        send(connection, Readiness(f"it can't be copied: {reason_of(error)}"))
        return None
    try:
        leader = os.pidfd_open(order.leader)
        until = math.ceil(clock() + min(order.seconds, LONGEST))
        server = WarmServer(Path(order.folder), order.key, os.getpid(), until)
        listener = server.listen()
    except OSError as error:
        send(connection, Readiness(f"it can't wait for the next launch: {reason_of(error)}"))
        os._exit(0)
    if not orphans.rewrite_mark("-" * len(os.environ[orphans.VARIABLE])):
        server.forget()
        send(connection, Readiness("its environment can't be rewritten"))
        os._exit(0)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    send(connection, Copied(os.getpid()))
    connection.close()
    taken = _wait(listener, leader, server)
    listener.close()
    os.close(leader)
    return taken, _take_over(taken, output, kept)


def _detached() -> bool:
    """Forks a process that is no child of this one; returns whether this is it.

    Raises:
        OSError: there is no memory for it, or there are too many processes.
    """
    intermediate = os.fork()
    if intermediate:
        if os.waitpid(intermediate, 0)[1]:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return False
    try:
        os.setsid()
        if not os.fork():
            return True
    except OSError:
        os._exit(1)
    os._exit(0)


def _wait(listener: socket.socket, leader: int, server: WarmServer) -> socket.socket:
    """Forks a process for every launch that connects, and returns its connection there.

    Ends when the time is over, the session has ended, or memory is short.
    """
    sources: tuple[socket.socket | int, ...] = (listener, leader)
    while server.left > 0 and host.free_memory() > LEAST_FREE:
        ready, _, _ = select.select(sources, [], [], min(CHECK, server.left))
        if leader in ready:
            break
        if ready:
            connection, _ = listener.accept()
            with suppress(OSError):
                pid, user = peer(connection)
                if user == os.geteuid() and is_here(pid) and _detached():
                    return connection
            connection.close()
    server.forget()
    os._exit(0)  # exit handlers and finalizers are the workers'


@dataclass(slots=True)
class Keepable:
    """The server's imports, with all that decides whether they may be used again.

    Attributes:
        trace: dependencies of the imports.
        steps_of: reads the script's first imports anew.
        refused: why it may not be used again; None if it may.
    """

    preloaded: Preloaded
    trace: ImportTrace
    steps_of: Callable[[], Iterable[Step]]
    refused: str | None


def _take_over(connection: socket.socket, output: CapturedOutput, kept: Keepable) -> CapturedOutput:
    """Makes this process the server of the launch that has connected, or ends it.

    Returns:
        The output of the imports, this process's own.
    """
    connection.settimeout(PATIENCE)
    try:
        order = receive(connection)
    except OSError:
        os._exit(0)
    if not isinstance(order, TakeOver):
        os._exit(0)
    connection.settimeout(None)
    launch = Launch(**json.loads(text_of(order.launch)))
    os.dup2(order.stdin, 0)
    os.close(order.stdin)
    os.close(order.launch)
    begun = time.time_ns()
    os.setsid()
    os.chdir(launch.folder)
    arguments = sys.argv[1:]
    sys.argv[1:] = launch.command[TARGET + 1 :]
    sys.orig_argv[:] = launch.command
    importlib.invalidate_caches()
    further = iter(kept.steps_of())
    if reason := _difference(launch, kept, arguments, further):
        _refuse(connection, Readiness(reason))
    for name in OF_THE_SHELL:
        os.environ.pop(name, None)
        if name in launch.environment:
            os.environ[name] = launch.environment[name]
    orphans.rewrite_mark(launch.environment[orphans.VARIABLE])
    kept.preloaded.environment = dict(launch.environment)
    kept.preloaded.per_rank = launch.per_rank_variables
    orphans.adopt_descendants(wanted=True)
    output = output.separate()
    send(connection, Copied(os.getpid()))
    try:
        kept.preloaded.run(kept.trace.during(further))
    except preload.UnsharedImport as unshared:
        _refuse(connection, Unshared(unshared.package, unshared.reason))
    kept.refused = kept.trace.settle(begun)
    send(connection, Readiness(preload.prepare_to_fork()))
    return output


def _difference(
    launch: Launch, kept: Keepable, arguments: Sequence[str], further: Iterator[Step]
) -> str | None:
    """Why the imports may not be used for a launch; None if they may.

    The `arguments` are those that were imported for. Takes the steps that were done from `further`,
    the steps of the launch's script.
    """
    before, now = kept.preloaded.environment, launch.environment
    for name in sorted((before.keys() | now.keys()) - OF_THE_SHELL):
        if before.get(name) != now.get(name):
            return f"{name} differs"
    for name in sorted(kept.preloaded.reads.keys() & launch.per_rank_variables):
        return f"an import reads {name}, {preload.PER_RANK}"
    if kept.trace.reads_arguments and arguments != sys.argv[1:]:
        return "an import reads the arguments, which differ"
    if changed := kept.trace.changed():
        return changed
    if any(next(further, None) != step for step in kept.preloaded.steps):
        return "the script's first imports have changed"
    return None


def _refuse(connection: socket.socket, message: Message) -> NoReturn:
    send(connection, message)
    os._exit(0)
