"""Child processes: adopts descendants, and reads exit codes."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36


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
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def exit_code(child: int) -> int:
    """The exit code of an ended child, -N for signal N, without reaping it.

    Raises:
        ChildProcessError: the process isn't a child of this one.
    """
    status: Any = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    return int(status.si_status if status.si_code == os.CLD_EXITED else -status.si_status)


def reap() -> None:
    """Reaps all ended children."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
