"""Finds files below folders named by a user, up to a limit."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.quantities import count_of

DEEPEST = 12
"""Maximum depth of a file below a named folder; torchrun's logs are 3 deep, 6 in a job's folder."""
MOST = 100_000
"""Maximum files and folders to visit; a local disk takes a second for them."""


@dataclass(frozen=True, slots=True)
class FilesBelow:
    """Files found below folders.

    Attributes:
        files: named files and files below named folders, in order of paths.
        left_out: unvisited parts, in sentences.
    """

    files: tuple[Path, ...]
    left_out: tuple[str, ...] = ()


def find(paths: Sequence[Path], deepest: int = DEEPEST, most: int = MOST) -> FilesBelow:
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
