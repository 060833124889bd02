"""Unix sockets: who is at the other end, and a folder for them that only their user can enter."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from ..core.errors import ExitCode, LaunchError
from . import private_files

OTHERWISE = "name another place with --log-dir"
SHARED = "/dev/shm"
"""A folder in memory, independent of full disks."""


def peer(connection: socket.socket) -> tuple[int, int]:
    """Process id and user of the other end, from the kernel (unix(7), SO_PEERCRED)."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, user, _ = struct.unpack("iII", credentials)
    return pid, user


def accept(listener: socket.socket) -> tuple[socket.socket, int] | None:
    """The next connection, with the peer's process id; None if it belongs to another user."""
    connection, _ = listener.accept()
    pid, user = peer(connection)
    if user == os.getuid():
        return connection, pid
    connection.close()
    return None


@contextmanager
def at_folder(folder: str | Path, name: str) -> Iterator[str]:
    """A socket's path through its folder's descriptor: paths are limited to 107 bytes (unix(7)).

    Raises:
        OSError: the folder can't be opened.
    """
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def socket_folder(attempt: Path, node: int) -> AbstractContextManager[Path]:
    """A folder for the sockets of a node's launcher and workers that only this user can enter.

    It is in the attempt's folder, which isn't cleaned like /tmp in a long run, and where a killed
    launcher leaves nothing outside of its run. If that file system lacks sockets or room, or others
    could replace the folder, it is a temporary folder, as a last resort in shared memory. Nodes may
    share the attempt's folder.

    Raises:
        LaunchError: no folder can be created.
    """
    return _first_of(
        (partial(_made, attempt.absolute() / f"sockets-{node}"), *_temporary()), attempt
    )


def temporary_socket_folder() -> AbstractContextManager[Path]:
    """A folder for sockets that only this user can enter, before any attempt.

    Raises:
        LaunchError: no folder could be created.
    """
    return _first_of(_temporary())


def _temporary() -> tuple[Callable[[], str], ...]:
    """Ways to create a temporary folder, shared memory last."""
    return (
        partial(tempfile.mkdtemp, prefix="safe-launch-"),
        partial(tempfile.mkdtemp, prefix="safe-launch-", dir=SHARED),
    )


@contextmanager
def _first_of(makers: Sequence[Callable[[], str]], *places: Path) -> Iterator[Path]:
    folder = _with_sockets(makers[0])
    for make in makers[1:]:
        if isinstance(folder, OSError):
            folder = _with_sockets(make)
    if isinstance(folder, OSError):
        *named, last = (*map(str, places), tempfile.gettempdir(), SHARED)
        problem = f"no folder for sockets can be made in {', '.join(named)} or {last}"
        raise LaunchError.because(folder, problem, OTHERWISE, code=ExitCode.CANNOT_WRITE)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _made(folder: Path) -> str:
    if (above := private_files.open_above(folder)) is not None:
        raise OSError(errno.EACCES, f"anyone can rename files in {above}")
    folder.mkdir(mode=0o700, exist_ok=True)
    return str(folder)


def _with_sockets(make: Callable[[], str]) -> Path | OSError:
    """The new folder, or the error in creating it or a socket in it."""
    folder = None
    try:
        folder = make()
        with at_folder(folder, "trial") as path, socket.socket(socket.AF_UNIX) as trial:
            trial.bind(path)
            Path(path).unlink()
    except OSError as error:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return error
    return Path(folder)
