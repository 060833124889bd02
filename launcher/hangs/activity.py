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
    if standing.state == "D" or standing.is_at_file or standing.io >= LEAST_IO:
        return True
    least = WORKS * standing.window
    works = standing.window > 0 and standing.cpu > least
    return works or any(is_child_busy(child, standing.window) for child in standing.children)


def is_child_busy(child: Child, window: float) -> bool:
    """Whether a child works or waits for its disk."""
    return child.state == "D" or (window > 0 and child.cpu > WORKS * window)


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
