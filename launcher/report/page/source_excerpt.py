"""The user's source around the line of a failure, if it is unchanged."""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...system import regular_files

AROUND = 4
"""Lines before and after."""
LARGEST = 1 << 20
LIBRARIES = ("site-packages", "dist-packages", "lib/python")


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of a file.

    Attributes:
        function: the function that the line is in.
        lines: numbers and texts; the line alone if the file has changed since, or is gone.
    """

    file: str
    function: str
    line: int
    lines: tuple[tuple[int, str], ...]


def excerpt(frames: Sequence[Mapping[str, Any]]) -> Excerpt | None:
    """The lines around the innermost frame of the user with a text; None without one."""
    users = filter(_is_users, frames)
    with_source = [frame for frame in users if str(frame.get("source") or "").strip()]
    if not with_source:
        return None
    frame = with_source[-1]
    file, line, text = frame["file"], frame["line"], str(frame["source"])
    around = _around(Path(file), line, text.strip())
    return Excerpt(file, str(frame.get("function") or ""), line, around or ((line, text),))


def _is_users(frame: Mapping[str, Any]) -> bool:
    file, line = frame.get("file"), frame.get("line")
    is_library = isinstance(file, str) and any(part in file for part in LIBRARIES)
    is_source = isinstance(file, str) and not file.startswith("<")  # <frozen importlib._bootstrap>
    return is_source and isinstance(line, int) and not is_library


def _around(path: Path, line: int, text: str) -> tuple[tuple[int, str], ...]:
    """The lines, only of a Python file that still has this text there: a record may name any."""
    with suppress(OSError, ValueError):
        status = path.lstat()
        if path.suffix != ".py" or not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            return ()
        lines = regular_files.read_text(path).splitlines()
        if text and 0 < line <= len(lines) and lines[line - 1].strip() == text:
            first, last = max(1, line - AROUND), min(len(lines), line + AROUND)
            return tuple((number, lines[number - 1]) for number in range(first, last + 1))
    return ()
