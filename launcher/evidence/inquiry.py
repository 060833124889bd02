"""Names shared by a worker and its launcher, for querying the worker's position.

Stacks: a signal makes faulthandler write them to memory that the worker has opened. This happens
in C, even while an extension holds the GIL. Collectives: torch's debug server reports them on a
socket in a folder of the launcher.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

VARIABLE = "SAFE_LAUNCH_SOCKETS"
"""Environment variable with the sockets' folder; workers can be queried if it is set."""
DUMPS_VARIABLE = "SAFE_LAUNCH_DUMPS"
"""Environment variable with the prefix of recorder dumps, followed by ranks."""
_DUMPS = "collectives-"
OF_ALL, OF_MAIN = signal.SIGRTMAX - 9, signal.SIGRTMAX - 10
"""The signals for stacks of all threads, and of the main thread, which must receive it itself.
Programs use real-time signals from the lowest up, valgrind the highest; schedulers and frameworks
use none, only SIGUSR1 and SIGUSR2."""
_STACK = "safe-launch-stack-"
_LINK = re.compile(rf"/memfd:{_STACK}(\d+) \(deleted\)")


def dumps_prefix(attempt: Path) -> str:
    """Prefix of the dumps of NCCL's and HCCL's recorders."""
    return str(attempt.absolute() / _DUMPS)


def stack_of(thread: int) -> str:
    """Name of the memory for stacks (memfd_create(2)), which leaves nothing behind."""
    return f"{_STACK}{thread}"


def thread_of(link: str) -> int | None:
    """The thread that takes `OF_ALL`, from a descriptor's link in /proc."""
    match = _LINK.fullmatch(link)
    return int(match[1]) if match else None


def name_of(rank: int) -> str:
    """Name of a rank's socket in its folder."""
    return f"rank-{rank}"
