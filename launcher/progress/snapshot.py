"""A node's progress in the attempt's folder, for other nodes and for later: its board, its pace."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..core.errors import Refused
from ..system import private_files, typed_files
from .board import RankProgress

_MOST = 512
"""Maximum points to keep; of more, every second one is dropped."""
Point = tuple[float, int]
"""Seconds since the epoch, and optimizer steps done."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The progress of a node's ranks.

    Attributes:
        node: the node's rank.
        written: time of writing, in seconds since the epoch.
    """

    node: int
    host: str
    written: float
    rows: tuple[RankProgress, ...]


def write(folder: Path, node: int, rows: Sequence[RankProgress]) -> None:
    """Writes a node's rows into an attempt's folder atomically.

    Raises:
        OSError: the write failed, e.g. the disk is full; the old file stays.
    """
    snapshot = Snapshot(node, os.uname().nodename, time.time(), tuple(rows))
    private_files.replace(_path(folder, node), msgspec.json.encode(snapshot) + b"\n")


def read(folder: Path, node: int) -> Snapshot | Refused:
    """Reads a node's last rows in an attempt's folder."""
    path = _path(folder, node)
    if not path.exists():
        return Refused(f"node {node} hasn't written how far it came")
    return typed_files.read_json(path, Snapshot)


def _path(folder: Path, node: int) -> Path:
    return folder / f"progress-{node}.json"


def extended(points: Sequence[Point], rows: Sequence[RankProgress]) -> tuple[Point, ...]:
    """Appends the first rank's current steps to the points."""
    step = rows[0].step if rows else None
    longer = (*points, *(() if step is None else ((time.time(), step),)))
    return longer if len(longer) <= _MOST else (*longer[:-1:2], longer[-1])


def write_pace(folder: Path, points: Sequence[Point]) -> None:
    """Writes the points into an attempt's folder.

    Raises:
        OSError: the write failed, e.g. the disk is full; the old file stays.
    """
    private_files.replace(folder / "pace.json", msgspec.json.encode(points) + b"\n")


def read_pace(folder: Path) -> tuple[Point, ...]:
    """Reads the points of an attempt; empty if missing or unreadable."""
    points = typed_files.read_json(folder / "pace.json", tuple[Point, ...])
    return () if isinstance(points, Refused) else points
