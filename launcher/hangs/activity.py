"""Detects a rank's activity from its process's state, processor time and I/O."""

from __future__ import annotations

from ..progress.board import Phase
from .standing import Child, Standing

WORKS = 0.025
"""Minimum share of a processor that counts as work: hanging ranks used at most 0.01 with all their
threads, a rank saving a checkpoint 0.18."""
LEAST_IO = 16 << 10
"""Minimum bytes read or written during the observation that count as work."""
ENDED_STATES = frozenset({"", "Z", "X"})
"""States of an ended process (proc_pid_stat(5))."""


def is_busy(standing: Standing) -> bool:
    """Whether the rank or its children use the processor, read or write.

    An uninterruptible process (D) waits for its disk, which counts as work, like a system call that
    reads or writes a file.
    """
    if standing.is_at_file or standing.io >= LEAST_IO:
        return True
    processes: tuple[Standing | Child, ...] = (standing, *standing.children)
    return any(is_process_busy(process, standing.window) for process in processes)


def is_process_busy(process: Standing | Child, window: float) -> bool:
    """Whether a process works or waits for its disk."""
    return process.state == "D" or (window > 0 and process.cpu > WORKS * window)


def is_gone(standing: Standing) -> bool:
    """Whether the process has ended before its script, or the node doesn't respond."""
    return (
        standing.state in ENDED_STATES
        and standing.phase is not Phase.ENDED
        and not is_unbegun(standing)
    )


def is_unbegun(standing: Standing) -> bool:
    """Whether the process hasn't begun."""
    return standing.pid == 0 and standing.phase is Phase.STARTING


def is_traced(standing: Standing) -> bool:
    """Whether a debugger has stopped the process."""
    return standing.state == "t"
