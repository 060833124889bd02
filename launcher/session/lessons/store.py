"""Stores lessons, a file each, in the user's cache or a team's shared folder."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ...core.errors import Refused, reason_of
from ...core.quantities import count_of
from ...core.quotation import cleaned_json
from ...system import private_files, regular_files, run_directory
from ...system.redaction import redacted
from .lesson import FORMAT, Lesson

SHARED = "SAFE_LAUNCH_LESSONS"
"""Environment variable with the folder that a team or a cluster shares, or `off`."""
OFF = "off"
TRUSTED = "trusted:"
"""The mark of a folder in which all users' lessons count."""
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
LARGEST = 1 << 20
"""Bytes of a lesson; one has a few thousand."""
MOST = 10_000
"""Lessons that are listed."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder with lessons.

    Attributes:
        is_trusted: whether all users' lessons in it count, not only this user's and root's.
    """

    path: Path
    is_trusted: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """A lesson and its file.

    Attributes:
        owner: whose file it is; empty for this user's.
    """

    path: Path
    lesson: Lesson
    owner: str = ""


def folders(environment: Mapping[str, str]) -> tuple[Folder, ...]:
    """The folders of lessons, the first for writing; empty if lessons are off."""
    shared, private = environment.get(SHARED, ""), _private_folder()
    if shared == OFF:
        return ()
    path = shared.removeprefix(TRUSTED)
    result = [Folder(Path(path), path != shared)] if path else []
    return (*result, Folder(private)) if private else (*result,)


def _private_folder() -> Path | None:
    """The folder in the user's cache; None for a user without a home, as in containers."""
    try:
        return run_directory.default_root().parent / "lessons"
    except RuntimeError:
        return None


def find(
    places: Sequence[Folder], script: str = "", circumstances: str = ""
) -> Iterator[Kept | Refused]:
    """The lessons in some folders, each once, in the order of their names.

    Folders are given by importance. For another user's lessons there is one refusal for each user.
    With `script` and `circumstances`, only lessons on these.
    """
    begin = f"{script}-{circumstances}" if circumstances else script
    seen: set[str] = set()
    for folder in places:
        names: list[str] = []
        with suppress(OSError):  # there is none yet, or this user may not read it
            names = sorted(os.listdir(folder.path))  # noqa: PTH208 - a tenth of the time
        others: Counter[int] = Counter()
        for name in names:
            is_match = name.endswith(".json") and name.startswith(begin) and name[0] != "."
            if is_match and name not in seen and len(seen) < MOST:
                read = _read(folder, name)
                if isinstance(read, int):
                    others[read] += 1
                else:
                    seen.add(name)
                    yield read
        for user, count in others.items():
            yield Refused(
                f"{count_of(count, 'lesson')} of {regular_files.owner(user)} in {folder.path}: "
                "only yours and root's count, "
                f"unless you set {SHARED}={TRUSTED}{folder.path}"
            )


def _read(folder: Folder, name: str) -> Kept | Refused | int:
    """A lesson; refused if the file is none; the owner if that is another user."""
    path = folder.path / name
    try:
        with os.fdopen(os.open(path, READ), "rb") as file:
            about = os.fstat(file.fileno())
            if about.st_uid not in (os.geteuid(), 0) and not folder.is_trusted:
                return about.st_uid
            if about.st_mode & 0o022 and not folder.is_trusted:
                others = f"others than {regular_files.owner(about.st_uid)}"
                return Refused(f"{path} can be written by {others}: chmod go-w it")
            if not stat.S_ISREG(about.st_mode):
                return Refused(f"{path} can't be read as a lesson: it isn't a regular file")
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            return Refused(f"{path} is too large for a lesson")
        lesson = msgspec.convert(cleaned_json(content), Lesson)
    except (OSError, ValueError, RecursionError) as error:
        is_link = isinstance(error, OSError) and error.errno == errno.ELOOP
        reason = "it is a link" if is_link else reason_of(error)
        return Refused(f"{path} can't be read as a lesson: {reason}")
    if lesson.format != FORMAT or lesson.file_name != name:
        return Refused(f"{path} isn't a lesson of this version")
    owner = "" if about.st_uid == os.geteuid() else regular_files.owner(about.st_uid)
    return Kept(path, lesson, owner)


def keep(lesson: Lesson, folder: Path) -> Refused | None:
    """Writes a lesson, over the one that taught the same before; a reader meets either whole.

    Concurrent writers, also on other hosts, do the same with separate files.
    """
    path = folder / lesson.file_name
    text = f"{redacted(run_directory.lines(msgspec.to_builtins(lesson)))}\n"
    try:
        if folder == _private_folder():
            private_files.make_folders(folder)
            mode = 0o600
        else:  # others of the team are to read it, and nobody to change it
            folder.mkdir(parents=True, exist_ok=True)
            mode = 0o644 & ~regular_files.umask()
        private_files.replace(path, text.encode(), mode, is_lasting=True)
    except OSError as error:
        return Refused(f"this run's lessons can't be saved in {folder}: {reason_of(error)}")
    return None


def forget(path: Path) -> Refused | None:
    """Removes a lesson."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        return Refused(f"{path} can't be removed: {reason_of(error)}")
    return None
