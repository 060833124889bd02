"""Stored run directories: which launchers run or ran there, their sizes, and those to remove."""

from __future__ import annotations

import math
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec

from ..core.errors import Refused, reason_of
from ..core.quantities import GIB
from . import private_files, typed_files

Instant = Annotated[float, msgspec.Meta(ge=0, lt=1e11)]
"""Seconds of the wall clock since the epoch, within calendars' years."""
MARKS = ("request.json", "launcher-*.json", "attempt-*")
"""Files that identify a run directory; one suffices."""
NAME = re.compile(r".*-\d{8}-\d{6}-[0-9a-f]{6}", re.ASCII | re.DOTALL)
"""Names of run directories (`run_directory.new_id`)."""
VARIABLE = "SAFE_LAUNCH_RUNS_GIB"
"""Environment variable that limits the default folder's size, in GiB; 0 for no limit."""
DAY = 86_400.0
MOST = 500
"""Maximum run directories in the default folder."""


class State(StrEnum):
    """The state of a launcher."""

    RUNNING = "running"
    ENDED = "ended"
    GONE = "gone"
    """It ended silently: by SIGKILL, with its host, or without room for its end."""
    ELSEWHERE = "elsewhere"
    """It runs, or ran, out of sight of this process: on another host, in another container."""


@dataclass(frozen=True, slots=True)
class LauncherRecord:
    """A launcher of a run.

    Attributes:
        place: the host's boot and its namespace of process ids, without which ids mean nothing.
        started: start of its process, in clock ticks since the boot (proc_pid_stat(5)), which
            distinguishes processes of the same id.
        command: the script with its arguments.
        begun: when the run began, in seconds of the wall clock since the epoch.
        ended: when it ended; None while it runs.
    """

    node: int
    host: str
    place: str
    pid: int
    started: int
    command: str
    begun: Instant
    ended: Instant | None = None

    @property
    def boot(self) -> str:
        """The boot of its host."""
        return self.place.partition(" ")[0]

    @property
    def state(self) -> State:
        """Its state, as seen from this host."""
        if self.ended is not None:
            return State.ENDED
        if self.place != (place := _place()):
            has_restarted = self.host == os.uname().nodename and self.boot != place.split()[0]
            return State.GONE if has_restarted else State.ELSEWHERE
        return State.RUNNING if _started(self.pid) == self.started else State.GONE


ROOM = 64
"""Bytes that a record reserves for its end, in case the disk becomes full."""


@contextmanager
def recorded(run: Path, node: int, command: str) -> Iterator[None]:
    """Keeps the record of this launcher in a run directory, if there is room for it."""
    pid = os.getpid()
    text = command.encode(errors="backslashreplace").decode()  # its words may have any bytes
    record = LauncherRecord(
        node, os.uname().nodename, _place(), pid, _started(pid) or 0, text, time.time()
    )
    _write(run, record)
    try:
        yield
    finally:
        _write(run, replace(record, ended=time.time()))


def records(run: Path) -> tuple[LauncherRecord | Refused, ...]:
    """The records of a run's launchers, by the ranks of their nodes, or why one can't be read."""
    paths = sorted(run.glob("launcher-*.json"), key=_number)
    return tuple(typed_files.read_json(path, LauncherRecord) for path in paths)


def _write(run: Path, record: LauncherRecord) -> None:
    path = run / f"launcher-{record.node}.json"
    content = msgspec.json.encode(record)
    try:
        private_files.replace(path, content + b" " * ROOM + b"\n")
    except OSError:
        with suppress(OSError):
            _write_over(path, content)


def _write_over(path: Path, content: bytes) -> None:
    """Writes a record over the older one, which is as long, in one piece."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if len(content) < size:
            os.pwrite(descriptor, content.ljust(size - 1) + b"\n", 0)
    finally:
        os.close(descriptor)


def _number(path: Path) -> int:
    number = path.stem.partition("-")[2]
    return int(number) if number.isdecimal() else -1


def _place() -> str:
    """The boot and the namespace; if a container hides them, the host's name and `?`."""
    boot, namespace = os.uname().nodename, "?"
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    with suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return f"{boot} {namespace}"


def _started(pid: int) -> int | None:
    """When a process was started, in clock ticks since the boot; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


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
            for record in records(self.folder)
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
    is_recorded = any(isinstance(record, LauncherRecord) for record in records(folder))
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
