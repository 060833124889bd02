"""Re-executes a forked worker whose script changes a variable that a preloaded import has read.

Such a script sets the variable before it imports; in the forked worker the import came first. A
fresh interpreter follows the script's order.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from .preload import Environment, Preloaded


class WatchedEnvironment(Environment):
    """`os.environ` in a forked worker.

    Attributes:
        reads: names that preloaded imports have looked up, each with the script's line of the
            latest such import.
        restart: re-executes the worker; takes the variable's name.
    """

    reads: dict[str, int]
    restart: Callable[[str], None]

    def __setitem__(self, name: str, value: str) -> None:
        if name in self.reads and self.get(name) != value:
            self._restart_if_early(name)
        super().__setitem__(name, value)

    def __delitem__(self, name: str) -> None:
        if name in self.reads and name in self:
            self._restart_if_early(name)
        super().__delitem__(name)

    def _restart_if_early(self, name: str) -> None:
        """Restarts if the script hasn't yet reached the import that read the variable."""
        line = _script_line()
        if line is not None and line < self.reads[name]:
            self.restart(name)


def _script_line() -> int | None:
    """The script's current line; None in another thread."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        is_script = frame.f_globals.get("__name__") == "__main__"
        if is_script and frame.f_code.co_name == "<module>" and frame.f_back:
            return frame.f_lineno
        frame = frame.f_back
    return None


def watch(preloaded: Preloaded, report: Callable[[str], None]) -> None:
    """Watches the variables that a forked worker's script sets.

    `report` is called with a variable's name before the worker is re-executed for it.
    """
    environment, command = dict(os.environ), list(sys.orig_argv)  # before the script changes them

    def restart(name: str) -> None:
        report(name)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.execve(sys.executable, command, environment)

    watched: Any = os.environ
    watched.reads, watched.restart = preloaded.reads, restart
    watched.__class__ = WatchedEnvironment  # in place, since other modules hold the object
