"""How a worker is asked where it stands without its help: names that it and its launcher know.

Its stack: a signal makes faulthandler write it into memory that the worker has opened. That happens
in C, even while an extension holds the GIL. Its collectives: torch's own debug server tells them,
at a socket in a folder of the launcher's.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

VARIABLE = "SAFE_LAUNCH_SOCKETS"
"""Environment variable with the folder of the sockets; workers can be asked where it is set."""
DUMPS_VARIABLE = "SAFE_LAUNCH_DUMPS"
"""Environment variable with how the names of recorders' dumps begin; their ranks follow."""
_DUMPS = "collectives-"
OF_ALL, OF_MAIN = signal.SIGRTMAX - 9, signal.SIGRTMAX - 10
"""The signals for the stacks of all threads, and of the main thread, which itself must get it.
Programs that take real-time signals count from the lowest up, and valgrind takes the highest;
schedulers and frameworks use none, but SIGUSR1 and SIGUSR2."""
_STACK = "safe-launch-stack-"
_LINK = re.compile(rf"/memfd:{_STACK}(\d+) \(deleted\)")


def dumps_prefix(attempt: Path) -> str:
    """How the names of the dumps of NCCL's and HCCL's recorders begin.

    Args:
        attempt: the attempt's folder.
    """
    return str(attempt.absolute() / _DUMPS)


def stack_of(thread: int) -> str:
    """The name of the memory for stacks (memfd_create(2)): nothing can be left behind.

    Args:
        thread: the number of the thread that takes `OF_ALL`.
    """
    return f"{_STACK}{thread}"


def thread_of(link: str) -> int | None:
    """The thread that takes `OF_ALL`, of what a descriptor's link in /proc is called."""
    found = _LINK.fullmatch(link)
    return int(found[1]) if found else None


@contextmanager
def at_folder(folder: str | Path, rank: int) -> Iterator[str]:
    """The path of a rank's socket, by a descriptor of its folder: it may have 107 bytes (unix(7)).

    Raises:
        OSError: the folder can't be opened.
    """
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/rank-{rank}"
    finally:
        os.close(descriptor)


@contextmanager
def socket_folder(attempt: Path, node: int) -> Iterator[Path]:
    """A folder for the sockets of a node's workers that only this user can enter.

    It is in the attempt's folder, where nothing is swept away in a long run, as it is in /tmp, and
    where a killed launcher leaves nothing that isn't with its run. Where that file system has no
    sockets, it is a temporary folder.

    Args:
        attempt: the attempt's folder.
        node: the node's rank; nodes may share the attempt's folder.
    """
    folder = attempt.absolute() / f"sockets-{node}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        with at_folder(folder, -1) as path, socket.socket(socket.AF_UNIX) as trial:
            trial.bind(path)
            Path(path).unlink()
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            folder = Path(tempfile.mkdtemp(prefix="safe-launch-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
