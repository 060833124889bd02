"""Takes over the server of an earlier launch with the same key, and leaves one for the next."""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ...core.request import LaunchRequest
from ...core.version import VERSION
from ...system import terminal
from . import warm_servers
from .forking_process import ForkingProcess
from .messages import TARGET, Copied, Keep, Launch, Readiness, TakeOver
from .warm_servers import WarmServer

TAKE_OVER_SECONDS = 10.0
"""Seconds for a kept server to check whether its imports are still right."""
LEAVE_SECONDS = 5.0
"""Seconds for the server to copy itself."""
STDIN = 0
STATUS = frozenset(
    {
        *("Uid", "Gid", "Groups", "Umask", "SigIgn", "SigBlk", "NoNewPrivs", "Seccomp"),
        *("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "Cpus_allowed", "Mems_allowed"),
    }
)
"""Fields of /proc/PID/status that a process inherits (proc(5))."""
FILES = ("limits", "cgroup", "oom_score_adj", "personality")
"""Files in /proc/PID that show what it inherits as well."""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A server that isn't this process's child, by its pidfd."""

    descriptor: int

    def kill(self) -> None:
        """Kills it."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.descriptor, signal.SIGKILL)

    def communicate(self) -> None:
        """Waits for its end."""
        select.select([self.descriptor], [], [])
        os.close(self.descriptor)


def take_over(key: str, launch: Launch) -> tuple[TakenOver, ForkingProcess] | None:
    """Takes over a server, which from now on is this launch's; None if there is none.

    Those whose imports aren't right any more are ended.
    """
    taken = (_take_over(server, launch) for server in warm_servers.find(key))
    return next(filter(None, taken), None)


def _take_over(server: WarmServer, launch: Launch) -> tuple[TakenOver, ForkingProcess] | None:
    connection = server.connect()
    if connection is None:
        return None
    with os.fdopen(os.memfd_create("launch"), "wb") as memory:
        memory.write(json.dumps(asdict(launch)).encode())
        memory.flush()
        order = TakeOver(STDIN, memory.fileno())
        answer = ForkingProcess(server.pid, connection).ask(order, TAKE_OVER_SECONDS)
    if isinstance(answer, Copied):
        return TakenOver(os.pidfd_open(answer.pid)), ForkingProcess(answer.pid, connection)
    connection.close()
    server.end()
    if isinstance(answer, Readiness):
        terminal.tell(f"the last launch's imports are imported anew: {answer.problem}")
    return None


def leave(process: ForkingProcess, key: str, seconds: float) -> None:
    """Has a server leave a copy for the next launch, in place of earlier ones."""
    folder = warm_servers.folder()
    if folder is None:
        terminal.tell("the imports aren't kept for the next launch: no private folder can be made")
        return
    match process.ask(Keep(key, seconds, os.getsid(0), str(folder)), LEAVE_SECONDS):
        case Copied(pid=pid):
            for server in warm_servers.find(key):
                if server.pid != pid:
                    server.end()
        case Readiness(problem=problem):
            terminal.tell(f"the imports aren't kept for the next launch: {problem}")


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
