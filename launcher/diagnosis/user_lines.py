"""Finds lines of the user's code related to a failure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..catalogue.entry import Finding
from ..core.request import LaunchRequest
from ..core.script import SourceLocation
from ..workload.script.files import user_files
from ..workload.script.line_searches import spots


def spots_of(root: Finding, request: LaunchRequest) -> tuple[SourceLocation, ...]:
    """Lines of the user's code related to a failure.

    Of files named by another node, opens only source files of this training.
    """
    if root.entry is None or root.entry.points_at is None:
        return ()
    paths = root.record.user_files
    if root.record.host:
        folders = [Path.cwd(), *(path.resolve().parent for path in user_files(request))]
        paths = tuple(path for path in paths if _is_source(Path(path), folders))
    return spots(root.entry.points_at, paths)


def _is_source(path: Path, folders: Sequence[Path]) -> bool:
    """Whether a path is a Python file below one of the folders."""
    try:
        real = path.resolve()
        return real.suffix == ".py" and real.is_file() and any(map(real.is_relative_to, folders))
    except (OSError, ValueError, RuntimeError):
        return False
