"""Files and folders that only their user can read, made anew: no planted link is followed."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import BinaryIO

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def make_folder(path: Path) -> None:
    """Makes a folder; another launcher of the same job may have made it.

    Raises:
        OSError: it can't be made, or another user has.
    """
    try:
        path.mkdir(mode=0o700)
    except FileExistsError as error:
        found = path.lstat()
        is_ours = found.st_uid == os.geteuid() or not os.geteuid()  # root is mapped on some shares
        if path.is_symlink() or not path.is_dir() or not is_ours:
            raise OSError(error.errno, "it is there, and isn't this user's folder") from error


def create(path: Path) -> BinaryIO:
    """Opens a new file to write, without a buffer.

    Raises:
        OSError: there is one of this name, or it can't be made.
    """
    # An opener, so that the file's `name` is its path, and no descriptor's number.
    return open(path, "wb", buffering=0, opener=_opened)


def _opened(path: str, _flags: int) -> int:
    return os.open(path, NEW, 0o600)


def write_all(file: BinaryIO, content: bytes) -> None:
    """Writes all of it, however much of it each call takes.

    Raises:
        OSError: it can't be written, e.g. the disk is full.
    """
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def replace(path: Path, content: bytes, mode: int = 0o600, *, is_lasting: bool = False) -> None:
    """Writes a whole file: a reader meets the old one or the new one.

    Args:
        path: of the file.
        content: what it shall hold.
        mode: its permissions afterwards.
        is_lasting: whether it must outlast a crash of the machine, which takes time.

    Raises:
        OSError: it can't be written, e.g. the disk is full; the old file stays.
    """
    fresh = path.with_name(f".safe-launch-{secrets.token_hex(8)}")
    file = create(fresh)
    try:
        with file:
            write_all(file, content)
            os.fchmod(file.fileno(), mode)
            if is_lasting:
                os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
