"""The processes of a run: marked in their environment, guarded, killed, adopted and reaped.

Every worker is started with its launcher's mark in its environment, and passes it on to its own
processes, across new sessions and process groups. So no list of processes is needed.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .signals import REPORT, STOPS

VARIABLE = "SAFE_LAUNCH_RUN_ID"
"""Environment variable that marks the processes of one run."""
SHARED = Path("/dev/shm")
"""The folder of POSIX shared memory on Linux."""
_DIES_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""
BEGINNING = 1.0
"""Seconds that a new program may take to get its environment; it takes microseconds."""
REAPING = 5.0
"""Seconds between checks for orphans that have ended, as a container's first process."""
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""
KILLING = 5.0
"""Seconds for killed processes to end."""


def marked(run_id: str, variable: str = VARIABLE) -> list[int]:
    """Process ids of all living processes of a run, except this process."""
    pids = (int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit())
    return [pid for pid in pids if pid != os.getpid() and is_marked(pid, run_id, variable)]


def is_marked(pid: int, run_id: str, variable: str = VARIABLE) -> bool:
    """Whether a process lives, and belongs to a run."""
    folder = Path(f"/proc/{pid}")
    end = time.monotonic() + BEGINNING
    while True:
        try:
            # In this order: a process past its beginning has its environment when that is read.
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            environment = (folder / "environ").read_bytes()
        except OSError:
            return False
        if fields[0] in (b"Z", b"X"):
            return False
        if environment or not _is_beginning(fields) or time.monotonic() > end:
            return f"{variable}={run_id}".encode() in environment.split(b"\0")
        time.sleep(0.001)


def _is_beginning(fields: Sequence[bytes]) -> bool:
    """Whether a process has its new program's memory, but not its environment yet.

    Its parent may continue before that: execve(2) closes its descriptors first. The `fields` are
    those of /proc/PID/stat from the state on (proc_pid_stat(5)): vsize, 0 for kernel threads, and
    env_end.
    """
    return fields[20] != b"0" and fields[48] == b"0"


def rewrite_mark(run_id: str) -> bool:
    """Gives this process another run's mark, in the environment that other processes see.

    /proc/PID/environ shows the memory in which the kernel put the variables at the program's start
    (proc(5): env_start and env_end in /proc/PID/stat).

    Returns:
        Whether there was a mark of the same length to rewrite.
    """
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, end = int(fields[47]), int(fields[48])
    name, value = f"{VARIABLE}=".encode(), run_id.encode()
    for match in re.finditer(rb"[^\0]+", ctypes.string_at(start, end - start)):
        if match[0].startswith(name) and len(match[0]) == len(name) + len(value):
            ctypes.memmove(start + match.start() + len(name), value, len(value))
            return True
    return False


def forget_buffers(port: int) -> None:
    """Unlinks the shared memory that DeepSpeed on CPUs creates and never unlinks.

    66 MiB for every rank if LOCAL_SIZE is the world's size, named by MASTER_PORT (`shm_initialize`
    in csrc/cpu/comm/shm.cpp). A process that still has it mapped keeps it.
    """
    for path in SHARED.glob(f"deepspeed_allreduce_buffer_{os.getuid()}_*_{port}_*"):
        path.unlink(missing_ok=True)


def kill(run_id: str, spared: Collection[int] = (), variable: str = VARIABLE) -> int:
    """Kills every process of a run and waits until none is left; returns how many there were.

    Repeats, since a process may fork while it is being looked for; gives up after `KILLING`.
    """
    end = time.monotonic() + KILLING
    killed: set[int] = set()
    while (alive := set(marked(run_id, variable)).difference(spared)) and time.monotonic() < end:
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
            killed.add(pid)
        time.sleep(0.01)
    return len(killed)


def stop(
    run_id: str, number: signal.Signals, seconds: float, is_hastened: Callable[[], bool]
) -> None:
    """Signals every process of a run, but none that they start later; kills those that remain."""
    end = time.monotonic() + seconds
    for pid in set(marked(run_id)):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    while set(marked(run_id)) and time.monotonic() < end and not is_hastened():
        time.sleep(0.01)
    kill(run_id)


def reaping_pause() -> float | None:
    """Seconds until `reap` is due; None if another process reaps the orphans."""
    return REAPING if os.getpid() == 1 else None


def reap(children: set[int]) -> None:
    """Reaps orphans that have ended, if this is a container's first process; else does nothing.

    Orphans become children of the first process, and no other process can reap them there. The
    code that started this process's other `children` reaps them itself.
    """
    if os.getpid() != 1:
        return
    for pid in Path("/proc/self/task/1/children").read_text().split():
        try:
            state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
            if state == b"Z" and int(pid) not in children:
                os.waitpid(int(pid), os.WNOHANG)
        except OSError:
            continue


def die_with(parent: int, number: signal.Signals = signal.SIGTERM) -> None:
    """Has the kernel send this process a signal when its parent ends, or if it already has.

    To be called in a new child (`preexec_fn`); its parent is the thread that started it.
    """
    ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, number)
    if os.getppid() != parent:
        os._exit(128 + number)


@dataclass(frozen=True, slots=True)
class Guardian:
    """A process that kills a run's processes if the launcher dies without dismissing it.

    Attributes:
        line: the launcher's end of the pipe that it reads.
    """

    pid: int
    line: int

    def dismiss(self) -> None:
        """Ends the guardian, stopped (SIGSTOP) or not: the launcher has cleaned up itself."""
        with suppress(ChildProcessError):  # it was killed, and reaped as an orphan
            if not os.waitpid(self.pid, os.WNOHANG)[0]:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
        os.close(self.line)


def guard(run_id: str, variable: str = VARIABLE) -> Guardian:
    """Forks a guardian for the run.

    SIGKILL leaves the launcher no chance to stop its workers. The guardian, in a new session, reads
    a pipe that only the launcher could write: when it is closed, the guardian kills the processes
    with the run's mark. Call this before any thread is started.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(reader)
        return Guardian(pid, writer)
    try:
        os.close(writer)
        os.setsid()
        for number in (*STOPS, REPORT):
            signal.signal(number, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        os.read(reader, 1)
        kill(run_id, variable=variable)
    finally:
        os._exit(0)


@contextmanager
def subreaper() -> Iterator[None]:
    """Descendants of this process become its children when their parents end."""
    adopt_descendants(wanted=True)
    try:
        yield
    finally:
        adopt_descendants(wanted=False)


def adopt_descendants(*, wanted: bool) -> None:
    """Sets whether descendants become this process's children when their parents end."""
    ctypes.CDLL(None).prctl(_SUBREAPER, int(wanted), 0, 0, 0)


def exit_code(child: int) -> int:
    """The exit code of an ended child, -N for signal N, without reaping it.

    Raises:
        ChildProcessError: the process isn't a child of this one.
    """
    status: Any = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    return int(status.si_status if status.si_code == os.CLD_EXITED else -status.si_status)


def reap_children() -> None:
    """Reaps all ended children."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
