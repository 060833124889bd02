"""The state of ranks and their child processes, from /proc (proc_pid_stat(5)).

A single pass over all processes; psutil would repeat it for every rank's children. Nothing is read
that waits for the lock on a process's memory, as its command line does.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, sleep

_TICK = os.sysconf("SC_CLK_TCK")
_NAME = 15
"""Length of a process's name in /proc (TASK_COMM_LEN)."""
_CALLS = {
    "x86_64": frozenset({0, 1, 17, 18, 19, 20, 74, 75, 295, 296}),
    "aarch64": frozenset({63, 64, 65, 66, 67, 68, 69, 70, 82, 83}),
}
"""Numbers of read, write, pread64, pwrite64, readv, writev, fsync, fdatasync, preadv and pwritev:
https://github.com/torvalds/linux/blob/v6.6/arch/x86/entry/syscalls/syscall_64.tbl,
https://github.com/torvalds/linux/blob/v6.6/include/uapi/asm-generic/unistd.h."""
_NO_FILES = ("/dev/", "/proc/", "/sys/", "/memfd:")
LOOKS, PAUSE = 5, 0.02
"""Maximum checks of calls, and seconds between them, as a thread may be between two calls."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process at a moment.

    Attributes:
        name: its name, of 15 letters at most.
        state: one letter.
        born: when it was started, in clock ticks since boot: with the pid, its identity.
        cpu: processor seconds that it has used in all its threads.
        called: bytes that it has read and written by system calls, pipes and sockets included.
        fetched: bytes that it has read from and written to storage, including the files that a data
            set maps into memory.
    """

    pid: int
    parent: int
    name: str
    state: str
    born: int
    cpu: float
    called: int = 0
    fetched: int = 0


@dataclass(frozen=True, slots=True)
class Ran:
    """Running times of a process's threads at a moment.

    Attributes:
        at: the moment, on the monotonic clock.
        is_ready: its main thread runs, or waits for a processor.
        threads: by their numbers, seconds (Documentation/scheduler/sched-stats).
    """

    at: float
    is_ready: bool
    threads: Mapping[int, float]


Trees = Mapping[int, tuple[Process, ...]]
"""By a rank's process id: its process and all descendants; empty if it is gone."""


def trees(roots: Collection[int]) -> Trees:
    """The processes of each rank."""
    living = {process.pid: process for process in _all()}
    children: dict[int, list[int]] = {}
    for process in living.values():
        children.setdefault(process.parent, []).append(process.pid)

    def below(pid: int) -> Iterator[Process]:
        if pid in living:
            yield _with_io(living[pid])
            for child in children.get(pid, ()):
                yield from below(child)

    return {root: tuple(below(root)) if root else () for root in roots}


def used(process: Process, before: Mapping[int, Process]) -> float:
    """Processor seconds that a process has used since an earlier moment."""
    earlier = _earlier(process, before)
    return process.cpu - (earlier.cpu if earlier else 0.0)


def moved(process: Process, before: Mapping[int, Process]) -> int:
    """Bytes that a process has read and written since an earlier moment, the larger count."""
    earlier = _earlier(process, before)
    if earlier is None:
        return max(process.called, process.fetched)
    return max(process.called - earlier.called, process.fetched - earlier.fetched, 0)


def takes(pid: int, thread: int, number: int) -> bool:
    """Whether a process has a handler for a signal that its thread would run at once."""
    with suppress(OSError, ValueError, KeyError):
        fields = status(pid, thread)
        masks = [fields[name] for name in ("SigCgt", "SigBlk", "SigPnd", "ShdPnd")]
        return [has_signal(mask, number) for mask in masks] == [True, False, False, False]
    return False


def status(pid: int, thread: int = 0) -> dict[str, str]:
    """The status of a thread, by default the main thread, by field (proc_pid_status(5)).

    Raises:
        OSError: it has ended.
    """
    text = Path(f"/proc/{pid}/task/{thread or pid}/status").read_text(errors="replace")
    return dict(line.split(":", 1) for line in text.splitlines())


def has_signal(mask: str, number: int) -> bool:
    """Whether a signal is in a mask of a status."""
    return bool(int(mask, 16) >> (number - 1) & 1)


def ran(pid: int) -> Ran:
    """Reads the running times of a process's threads, and whether it waits for a processor."""
    threads = {}
    at = monotonic()
    for name in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - quick
        with suppress(OSError, ValueError, IndexError):
            text = Path(f"/proc/{pid}/task/{name}/schedstat").read_text()
            threads[int(name)] = int(text.split()[0]) / 1e9
    main = _parsed(pid, Path(f"/proc/{pid}/task/{pid}/stat").read_bytes())
    return Ran(at, main.state == "R", threads)


def is_at_file(pids: Iterable[int]) -> bool:
    """Whether a thread is inside a system call that reads or writes a file.

    Writing a tensor is a single call, which takes minutes on a slow file system, with unchanged
    counters in /proc/PID/io. Most file systems show state D, but in user space file systems (FUSE)
    the process sleeps as in any other wait (proc_pid_syscall(5)). The file system isn't touched.
    """
    folders = [Path(f"/proc/{pid}/task") for pid in pids]
    for look in range(LOOKS):
        if look:
            sleep(PAUSE)
        if any(map(_is_process_at_file, folders)):
            return True
    return False


def _earlier(process: Process, before: Mapping[int, Process]) -> Process | None:
    """The process as it was; None for a new process, even if it reuses an old process id."""
    earlier = before.get(process.pid)
    return earlier if earlier is not None and earlier.born == process.born else None


def _all() -> Iterator[Process]:
    for name in os.listdir("/proc"):  # noqa: PTH208 - quick
        if name.isdecimal():
            with suppress(OSError, ValueError, IndexError):
                yield _parsed(int(name), Path(f"/proc/{name}/stat").read_bytes())


def _parsed(pid: int, stat: bytes) -> Process:
    """A line of /proc/PID/stat; the name in it may have spaces and brackets."""
    head, _, tail = stat.rpartition(b")")
    name = head.partition(b"(")[2][:_NAME].decode(errors="replace")
    fields = tail.split()
    seconds = (int(fields[11]) + int(fields[12])) / _TICK
    return Process(pid, int(fields[1]), name, fields[0].decode(), int(fields[19]), seconds)


def _with_io(process: Process) -> Process:
    with suppress(OSError, ValueError, KeyError):
        text = Path(f"/proc/{process.pid}/io").read_text()
        counts = {name: int(value) for name, value in (row.split(":") for row in text.splitlines())}
        return replace(
            process,
            called=counts["rchar"] + counts["wchar"],
            fetched=counts["read_bytes"] + counts["write_bytes"],
        )
    return process


def _is_process_at_file(folder: Path) -> bool:
    with suppress(OSError):
        return any(map(_is_thread_at_file, folder.iterdir()))
    return False


def _is_thread_at_file(task: Path) -> bool:
    with suppress(OSError, ValueError, IndexError):
        number, descriptor, *_ = (task / "syscall").read_text().split()
        if int(number) in _CALLS.get(platform.machine(), ()):
            link = os.readlink(task / "fd" / str(int(descriptor, 16)))  # noqa: PTH115 - no file yet
            is_file = link.startswith("/") and not link.startswith(_NO_FILES)
            return is_file and "pipe" not in (task / "wchan").read_text()  # nor a named pipe
    return False
