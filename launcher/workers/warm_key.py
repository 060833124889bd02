"""The key that two launches must share for one to use the other's imports."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ..core.request import LaunchRequest
from ..core.version import VERSION
from ..system import terminal
from .forkserver.messages import TARGET

STATUS = frozenset(
    {
        *("Uid", "Gid", "Groups", "Umask", "SigIgn", "SigBlk", "NoNewPrivs", "Seccomp"),
        *("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "Cpus_allowed", "Mems_allowed"),
    }
)
"""Fields of /proc/PID/status that a process inherits (proc(5))."""
FILES = ("limits", "cgroup", "oom_score_adj", "personality")
"""Files in /proc/PID that show what it inherits as well."""


def warm_key(request: LaunchRequest, command: Sequence[str]) -> str:
    """A text that is equal for two launches only if a fork of one suits the other.

    It comprises the interpreter, script, folder and terminal session, and all that a process
    inherits besides its environment, whose variables are compared later.

    Returns:
        The text; empty if nothing can be kept, which is printed for the user.
    """
    if problem := _problem(request):
        terminal.tell(f"--keep-warm: nothing is kept: {problem}")
        return ""
    target = str(Path(command[TARGET]).resolve())
    parts = [VERSION, *command[: TARGET + 1], target, str(Path.cwd()), *map(str, _inherited())]
    return hashlib.blake2s("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:16]


def _problem(request: LaunchRequest) -> str | None:
    """Why nothing can be kept; None if it can."""
    if request.worker_options.start_method == "spawn" or request.is_program:
        return "such workers do their imports themselves"
    if not request.placement.is_alone or "SLURM_JOB_ID" in os.environ:
        return "this is a job of several launchers, or of a cluster"
    if os.getpid() == 1 or os.getsid(0) in (0, os.getpid()):
        return "the session ends with this launch"
    return None


def _inherited() -> Iterator[object]:
    """State that a process inherits besides its environment."""
    process = Path("/proc/self")
    yield os.getsid(0)
    yield os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)
    for line in (process / "status").read_text().splitlines():
        if line.partition(":")[0] in STATUS:
            yield line
    for name in FILES:
        with suppress(OSError):
            yield (process / name).read_text()
    for link in (process / "root", *sorted((process / "ns").iterdir())):
        with suppress(OSError):
            yield link.readlink()
    with suppress(OSError), (process / "numa_maps").open() as lines:
        yield lines.readline().split()[1:2]  # the memory policy
