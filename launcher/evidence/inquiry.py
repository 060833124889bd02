"""Names shared by a worker and its launcher, which asks for its position without its help.

Its stack: a signal makes faulthandler write it into memory that the worker has opened. That happens
in C, even while an extension holds the GIL. Its collectives: torch's own debug server reports them,
at a socket in a folder of the launcher's.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

VARIABLE = "SAFE_LAUNCH_SOCKETS"
"""Environment variable with the folder of the sockets; workers can be asked if it is set."""
DUMPS_VARIABLE = "SAFE_LAUNCH_DUMPS"
"""Environment variable with how the names of recorders' dumps begin; their ranks follow."""
_DUMPS = "collectives-"
OF_ALL, OF_MAIN = signal.SIGRTMAX - 9, signal.SIGRTMAX - 10
"""The signals for the stacks of all threads, and of the main thread, which itself must get it.
Programs that take real-time signals count from the lowest up, and valgrind takes the highest;
schedulers and frameworks use none, but SIGUSR1 and SIGUSR2."""
_STACK = "safe-launch-stack-"
_LINK = re.compile(rf"/memfd:{_STACK}(\d+) \(deleted\)")


def dumps_prefix(attempt: Path) -> str:
    """How the names of the dumps of NCCL's and HCCL's recorders begin."""
    return str(attempt.absolute() / _DUMPS)


def stack_of(thread: int) -> str:
    """The name of the memory for stacks (memfd_create(2)): nothing can be left behind."""
    return f"{_STACK}{thread}"


def thread_of(link: str) -> int | None:
    """The thread that takes `OF_ALL`, of what a descriptor's link in /proc is called."""
    found = _LINK.fullmatch(link)
    return int(found[1]) if found else None


def name_of(rank: int) -> str:
    """The name of a rank's socket in its folder."""
    return f"rank-{rank}"
