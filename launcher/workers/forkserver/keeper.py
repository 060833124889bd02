"""A copy of the server that outlives its launch, and waits for the next one.

It only forks a process for each launch that asks, which checks whether the imports are still right
for that launch (`takeover`). So the copy itself stays as it was after the imports.
"""

from __future__ import annotations

import errno
import math
import os
import select
import socket
from contextlib import suppress
from pathlib import Path

from ...core.errors import reason_of
from ...machine import host
from ...system import orphans
from ...system.unix_socket import peer
from .captured_output import CapturedOutput
from .messages import Copied, Keep, Readiness, send
from .takeover import Keepable, take_over
from .warm_servers import WarmServer, clock, is_here

CHECK = 5.0
"""Seconds between looks at the free memory."""
LONGEST = 7 * 86400.0
"""Seconds that a kept server waits at most: a week."""
LEAST_FREE = 0.1
"""The share of memory that must be free; with less, a kept server ends."""


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
    return taken, take_over(taken, output, kept)


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
