"""Measures stored run directories and chooses those to remove."""

from __future__ import annotations

import math
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import Refused, reason_of
from ..core.quantities import GIB
from . import launcher_record
from .launcher_record import LauncherRecord, State

MARKS = ("request.json", "launcher-*.json", "attempt-*")
"""Files that identify a run directory; one suffices."""
NAME = re.compile(r".*-\d{8}-\d{6}-[0-9a-f]{6}", re.ASCII | re.DOTALL)
"""Names of run directories (`run_directory.new_id`)."""
VARIABLE = "SAFE_LAUNCH_RUNS_GIB"
"""Environment variable that limits the default folder's size, in GiB; 0 for no limit."""
DAY = 86_400.0
MOST = 500
"""Maximum run directories in the default folder."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on a folder of run directories.

    Attributes:
        size: total bytes.
        age: seconds since a run's last write.
    """

    runs: float = math.inf
    size: float = math.inf
    age: float = math.inf


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A run directory.

    Attributes:
        size: bytes of its files.
        changed: time of the last write, in seconds since the epoch.
    """

    folder: Path
    size: int
    changed: float

    def has_ended(self, now: float) -> bool:
        """Whether no launcher writes to it any more.

        On an unreachable host, a day without a sign of life counts as the end.
        """
        states = [
            record.state if isinstance(record, LauncherRecord) else None
            for record in launcher_record.records(self.folder)
        ]
        if (self.folder / "outcome.json").exists() or now - self.changed > DAY:
            return State.RUNNING not in states
        return bool(states) and all(state in (State.ENDED, State.GONE) for state in states)


def default_limits(environment: Mapping[str, str]) -> Limits:
    """The limits on the default folder; no limit if the variable isn't a number."""
    try:
        gib = float(environment.get(VARIABLE) or "2")
    except ValueError:
        gib = 0.0
    return Limits(MOST, gib * GIB) if gib > 0 else Limits()


def kept(root: Path) -> list[Path]:
    """The run directories in a folder, the latest first."""
    with suppress(OSError):
        runs = [(path.stat().st_mtime, path) for path in root.iterdir() if is_run(path)]
        return [path for _, path in sorted(runs, reverse=True)]
    return []


def is_run(folder: Path) -> bool:
    """Whether a folder is a run directory."""
    with suppress(OSError):
        return any(next(folder.glob(mark), None) is not None for mark in MARKS)
    return False


def _is_removable(folder: Path) -> bool:
    """Whether a folder may be removed: it has a run's name, and a launcher's record in it."""
    records = launcher_record.records(folder)
    is_recorded = any(isinstance(record, LauncherRecord) for record in records)
    return is_recorded and NAME.fullmatch(folder.name) is not None


def measured(folder: Path) -> KeptRun:
    """A run directory with its size; what can't be read doesn't count. Links aren't followed."""
    size, changed = 0, 0.0
    for parent, _, names in os.walk(folder):
        for path in (parent, *(f"{parent}/{name}" for name in names)):
            with suppress(OSError):
                status = os.lstat(path)
                size += status.st_blocks * 512
                changed = max(changed, status.st_mtime)
    return KeptRun(folder, size, changed)


def surplus(root: Path, limits: Limits) -> Iterator[KeptRun]:
    """The runs that have ended and are beyond the limits, the oldest last.

    Counts from the latest on, running ones included; the latest isn't removed for its size.
    """
    if limits == Limits():
        return
    now, number, size = time.time(), 0, 0
    for folder in kept(root):
        if folder.is_symlink() or not _is_removable(folder):
            continue
        run = measured(folder)
        number, size = number + 1, size + run.size
        is_over = number > limits.runs or (size > limits.size and number > 1)
        if (is_over or now - run.changed > limits.age) and run.has_ended(now):
            yield run


def remove(run: KeptRun) -> Refused | None:
    """Removes a run directory; if that fails, the rest still counts as a run."""
    try:
        shutil.rmtree(run.folder)
    except OSError as error:
        return Refused(f"{run.folder} can't be removed: {reason_of(error)}")
    return None


def make_room(root: Path, environment: Mapping[str, str]) -> None:
    """Removes the oldest runs of the default folder beyond its limits."""
    with suppress(OSError):  # the training has ended well all the same
        for run in [*surplus(root, default_limits(environment))]:
            remove(run)
