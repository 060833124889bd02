"""Reads and writes files that the user has named."""

from __future__ import annotations

import errno
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from ..core.errors import LaunchError
from ..core.quantities import MIB
from . import private_files

NEW = 0o644
"""Permissions of a new file, less the user's mask."""
LARGEST = 64 * MIB
"""Bytes of a file that is parsed as a whole, at most."""


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """Opens a file to read parts of it.

    Raises:
        OSError: it can't be read, or isn't a regular file: a pipe would hang, a device never end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check(os.fstat(descriptor).st_mode)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def read(path: Path, largest: int = LARGEST) -> bytes:
    """A file's content.

    Raises:
        OSError: it can't be read, is too large, or isn't a regular file.
    """
    with opened(path) as file:
        # `read` allocates all requested bytes.
        content = file.read(min(largest, os.fstat(file.fileno()).st_size) + 1)
    if len(content) > largest:
        raise OSError(errno.EINVAL, f"it is larger than {largest / MIB:g} MiB")
    return content


def read_text(path: Path) -> str:
    """A file's text.

    Raises:
        OSError: as `read` does.
        UnicodeDecodeError: it isn't UTF-8.
    """
    return read(path).decode()


def text_of(path: Path, option: str = "") -> str:
    """The text of a file that the user has named, maybe by an `option`.

    Raises:
        LaunchError: it can't be read.
    """
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise LaunchError.because(error, f"{option}{path} can't be read") from error


def overwrite(path: Path, content: bytes) -> Path:
    """Writes a whole file; a link is followed, permissions are kept.

    Returns:
        The file that was written.

    Raises:
        OSError: it can't be written, or isn't a regular file; it stays as it was.
    """
    target = Path(os.path.realpath(path))
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG | (NEW & ~umask())
    _check(mode)
    private_files.replace(target, content, stat.S_IMODE(mode), is_lasting=True)
    return target


def umask() -> int:
    """The process's mask of permissions, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def owner(number: int) -> str:
    """A user's name, for a message; the number if it has none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _check(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it isn't a regular file")
