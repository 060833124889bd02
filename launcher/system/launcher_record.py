"""The record of a launcher in its run directory: where it runs, and whether it still does."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec

from ..core.errors import Refused
from . import private_files, typed_json

Instant = Annotated[float, msgspec.Meta(ge=0, lt=1e11)]
"""Seconds of the wall clock since the epoch, within calendars' years."""


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
    return tuple(typed_json.read(path, LauncherRecord) for path in paths)


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
