"""Stores a node's board in the attempt's folder, for other nodes and for later."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..core.errors import Refused
from ..system import private_files, typed_json
from .board import RankProgress


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
    return typed_json.read(path, Snapshot)


def _path(folder: Path, node: int) -> Path:
    return folder / f"progress-{node}.json"
