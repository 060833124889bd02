"""Files and folders that only their user can read, made anew: no planted link is followed."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def make_folder(path: Path) -> None:
    """Makes a folder that only its user can enter; another launcher of the job may have made it.

    Raises:
        OSError: it can't be made, or an existing one isn't this user's folder.
    """
    try:
        path.mkdir(mode=0o700)
    except FileExistsError as error:
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or not _is_users(status.st_uid, path.parent):
            raise OSError(error.errno, "it is there, and isn't this user's folder") from error


def make_folders(path: Path) -> None:
    """Makes a folder and those above it, if they are missing.

    Raises:
        OSError: one can't be made.
    """
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            with suppress(FileExistsError):  # another launcher was first
                folder.mkdir(mode=0o700)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "a part of it is a file", str(path))


def make_unshared(path: Path) -> None:
    """Makes a folder for files to be executed; an existing one must be as safe as a new one.

    Its owner must be this user, even for root.

    Raises:
        OSError: it can't be made, or another user may have put something into it, or may put
            another folder in its place.
    """
    if (above := open_above(path)) is not None:
        raise OSError(errno.EACCES, f"anyone can rename files in {above}: chmod +t it")
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if not is_unshared(path):
        raise OSError(errno.EEXIST, "it is there, and isn't a folder of this user's alone")


def is_unshared(path: Path) -> bool:
    """Whether a path is a folder of this user, which nobody else can enter or replace.

    Raises:
        OSError: there is none.
    """
    status = path.lstat()
    is_private = stat.S_ISDIR(status.st_mode) and status.st_mode & 0o777 == 0o700
    return is_private and status.st_uid == os.geteuid() and open_above(path) is None


def open_above(path: Path) -> Path | None:
    """A folder above a path in which all users may rename others' files; None without one.

    That is a world-writable folder without the sticky bit (inode(7)).
    """
    for folder in Path(os.path.realpath(path.parent)), *Path(os.path.realpath(path.parent)).parents:
        with suppress(OSError):
            mode = folder.stat().st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                return folder
    return None


def _is_users(owner: int, parent: Path) -> bool:
    """Whether an owner is this user, or the user to whom a share maps root.

    A share may do so (root_squash in exports(5)); the owner of a new folder shows it.
    """
    if owner == os.geteuid():
        return True
    if os.geteuid():
        return False
    with tempfile.TemporaryDirectory(prefix=".safe-launch-", dir=parent) as trial:
        return owner == os.lstat(trial).st_uid


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
    """Writes all of it, in as many calls as needed.

    Raises:
        OSError: it can't be written, e.g. the disk is full.
    """
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def replace(path: Path, content: bytes, mode: int = 0o600, *, is_lasting: bool = False) -> None:
    """Writes a whole file: a reader sees the old one or the new one.

    With `is_lasting` it survives a crash of the machine, which takes time.

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
