"""An attempt's steps over time, stored in its folder for its report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..core.errors import Refused
from ..system import private_files, typed_json
from .board import RankProgress

MOST = 512
"""Maximum points to keep; of more, every second one is dropped."""

Point = tuple[float, int]
"""Seconds since the epoch, and optimizer steps done."""


def extended(points: Sequence[Point], rows: Sequence[RankProgress]) -> tuple[Point, ...]:
    """Appends the first rank's current steps to the points."""
    step = rows[0].step if rows else None
    longer = (*points, *(() if step is None else ((time.time(), step),)))
    return longer if len(longer) <= MOST else (*longer[:-1:2], longer[-1])


def write(folder: Path, points: Sequence[Point]) -> None:
    """Writes the points into an attempt's folder.

    Raises:
        OSError: the write failed, e.g. the disk is full; the old file stays.
    """
    private_files.replace(folder / "pace.json", msgspec.json.encode(points) + b"\n")


def read(folder: Path) -> tuple[Point, ...]:
    """Reads the points of an attempt; empty if missing or unreadable."""
    points = typed_json.read(folder / "pace.json", tuple[Point, ...])
    return () if isinstance(points, Refused) else points
