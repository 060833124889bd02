"""The steps that an attempt had done over time, kept in its folder for its report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..system import private_files, regular_files
from .board import RankProgress

MOST = 512
"""Points that are kept; if there are more, every second one is dropped."""

Point = tuple[float, int]
"""Seconds of the wall clock since the epoch, and the optimizer steps done by then."""


def extended(points: Sequence[Point], rows: Sequence[RankProgress]) -> tuple[Point, ...]:
    """The points with what the first of these ranks has done by now."""
    step = rows[0].step if rows else None
    longer = (*points, *(() if step is None else ((time.time(), step),)))
    return longer if len(longer) <= MOST else (*longer[:-1:2], longer[-1])


def write(folder: Path, points: Sequence[Point]) -> None:
    """Writes the points into an attempt's folder.

    Raises:
        OSError: they can't be written, e.g. the disk is full; the old ones stay.
    """
    private_files.replace(folder / "pace.json", msgspec.json.encode(points) + b"\n")


def read(folder: Path) -> tuple[Point, ...]:
    """The points of an attempt; none if there are none, or none that can be read."""
    try:
        content = regular_files.read(folder / "pace.json")
        return msgspec.json.decode(content, type=tuple[Point, ...])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ()
