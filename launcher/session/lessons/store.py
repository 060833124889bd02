"""Where lessons are kept: a file each, in the user's cache or a folder that a team shares."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ...core.control_sequences import cleaned_json
from ...core.refused import Refused
from ...system import private_files, run_directory, user_files
from ...system.redaction import redacted
from .lesson import FORMAT, Lesson

SHARED = "SAFE_LAUNCH_LESSONS"
"""Environment variable with the folder that a team or a cluster shares, or `off`."""
OFF = "off"
LARGEST = 1 << 20
"""Bytes of a lesson; one has a few thousand."""
MOST = 10_000
"""Lessons that are listed."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A lesson and its file."""

    path: Path
    lesson: Lesson


def folders(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Where lessons are read; they are written to the first. None where they are switched off."""
    shared, own = environment.get(SHARED), _own()
    if shared == OFF:
        return ()
    return tuple(filter(None, (Path(shared) if shared else None, own)))


def _own() -> Path | None:
    """The folder in the user's cache; None for a user without a home, as containers have."""
    try:
        return run_directory.default_root().parent / "lessons"
    except RuntimeError:
        return None


def found(
    places: Sequence[Path], script: str = "", circumstances: str = ""
) -> Iterator[Kept | Refused]:
    """The lessons in some folders, each once, in the order of their names.

    Args:
        places: the folders, the most important first.
        script: only those on this script.
        circumstances: only those of these circumstances.
    """
    begin = f"{script}-{circumstances}" if circumstances else script
    seen: set[str] = set()
    for folder in places:
        names: list[str] = []
        with suppress(OSError):  # there is none yet, or it isn't ours to read
            names = sorted(os.listdir(folder))  # noqa: PTH208 - a tenth of the time
        for name in names:
            is_one = name.endswith(".json") and name.startswith(begin) and name[0] != "."
            if is_one and name not in seen and len(seen) < MOST:
                seen.add(name)
                yield _read(folder / name)


def _read(path: Path) -> Kept | Refused:
    """A lesson; refused where the file is none, whoever wrote it."""
    try:
        content = user_files.read(path, LARGEST)
        lesson = msgspec.convert(cleaned_json(content), Lesson)
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        return Refused(f"{path} can't be read as a lesson: {reason}")
    if lesson.format != FORMAT or lesson.file_name != path.name:
        return Refused(f"{path} isn't a lesson of this version")
    return Kept(path, lesson)


def keep(lesson: Lesson, folder: Path) -> Refused | None:
    """Writes a lesson, over the one that taught the same before; a reader meets either whole.

    Other writers of the same file, also on other hosts, do the same with files of their own.

    Args:
        lesson: it.
        folder: where to; it is made.
    """
    path = folder / lesson.file_name
    text = f"{redacted(run_directory.lines(msgspec.to_builtins(lesson)))}\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Others of the team are to read it, where the folder isn't the user's own.
        mode = 0o600 if folder == _own() else 0o666 & ~_umask()
        private_files.replace(path, text.encode(), mode, is_lasting=True)
    except OSError as error:
        return Refused(f"what this run has learnt can't be kept in {folder}: {error.strerror}")
    return None


def forget(path: Path) -> Refused | None:
    """Removes a lesson."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        return Refused(f"{path} can't be removed: {error.strerror}")
    return None


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
