"""Reads, writes and finds files that the user has named."""

from __future__ import annotations

import errno
import os
import pwd
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from ..core.errors import LaunchError
from ..core.quantities import MIB, count_of
from . import private_files

NEW = 0o644
"""Permissions of a new file, less the user's mask."""
LARGEST = 64 * MIB
"""Bytes of a file that is parsed as a whole, at most."""
_DEEPEST = 12
"""Maximum depth of a file below a named folder; torchrun's logs are 3 deep, 6 in a job's folder."""
_MOST = 100_000
"""Maximum files and folders to visit; a local disk takes a second for them."""


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


@dataclass(frozen=True, slots=True)
class FilesBelow:
    """Files found below folders.

    Attributes:
        files: named files and files below named folders, in order of paths.
        left_out: unvisited parts, in sentences.
    """

    files: tuple[Path, ...]
    left_out: tuple[str, ...] = ()


def files_below(paths: Sequence[Path], deepest: int = _DEEPEST, most: int = _MOST) -> FilesBelow:
    """Finds files among the paths and below, without following links to folders.

    The limits are like `DEEPEST` and `MOST`; nearest files come first.
    """
    files: list[Path] = []
    left_out: list[str] = []
    for path in paths:
        if path.is_dir():
            below = _below(path, deepest, most)
            files += below.files
            left_out += below.left_out
        else:
            files.append(path)
    return FilesBelow(tuple(files), tuple(left_out))


def _below(top: Path, deepest: int, most: int) -> FilesBelow:
    files: list[str] = []
    deep: list[str] = []
    closed: list[str] = []
    is_cut, seen = False, 0
    waiting = deque([(str(top), 0)])
    while waiting and not is_cut:
        folder, depth = waiting.popleft()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if seen == most:
                        is_cut = True
                        break
                    seen += 1
                    if not entry.is_dir(follow_symlinks=False):
                        files.append(entry.path)
                    elif depth < deepest:
                        waiting.append((entry.path, depth + 1))
                    else:
                        deep.append(entry.path)
        except OSError:
            closed.append(folder)
    left_out = []
    if is_cut:
        left_out.append(
            f"{top} holds more files and folders than {most:,}: the others are left out"
        )
    if deep:
        left_out.append(f"{_named(deep)} left out: deeper than {count_of(deepest, 'folder')}")
    if closed:
        left_out.append(f"{_named(closed)} left out: not readable")
    in_order = sorted(files, key=lambda file: file.replace("/", "\0"))  # as paths, which are slow
    return FilesBelow(tuple(map(Path, in_order)), tuple(left_out))


def _named(folders: Sequence[str]) -> str:
    """Formats a folder and the number of others, with a verb."""
    if len(folders) == 1:
        return f"{folders[0]} is"
    return f"{folders[0]} and {count_of(len(folders) - 1, 'other folder')} are"
