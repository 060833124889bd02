"""A forked worker whose script sets what an import has read already begins once more."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from . import preload


class Watched(os._Environ[str]):
    """`os.environ` in a forked worker, until its script changes what an import has read already.

    Such a script sets the variable first and imports then; here the import was first. It begins
    once more, in a fresh interpreter.

    Attributes:
        reads: names that the imports have looked up, with the line of the script of the latest.
        afresh: begins once more; told the variable.
    """

    reads: dict[str, int]
    afresh: Callable[[str], None]

    def __setitem__(self, name: str, value: str) -> None:
        if name in self.reads and self.get(name) != value:
            self._judge(name)
        super().__setitem__(name, value)

    def __delitem__(self, name: str) -> None:
        if name in self.reads and name in self:
            self._judge(name)
        super().__delitem__(name)

    def _judge(self, name: str) -> None:
        """Begins afresh where the script does this before it imports what has read the name."""
        line = _line()
        if line is not None and line < self.reads[name]:
            self.afresh(name)


def _line() -> int | None:
    """The line that the script is at; None in another thread."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        is_script = frame.f_globals.get("__name__") == "__main__"
        if is_script and frame.f_code.co_name == "<module>" and frame.f_back:
            return frame.f_lineno
        frame = frame.f_back
    return None


def watch(preloaded: preload.Preloaded, tell: Callable[[str], None]) -> None:
    """Watches what the script of a forked worker sets.

    Args:
        preloaded: what was imported before.
        tell: told the variable for which the script begins once more.
    """
    environment, command = dict(os.environ), list(sys.orig_argv)  # before the script sees its own

    def afresh(name: str) -> None:
        tell(name)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.execve(sys.executable, command, environment)

    watched: Any = os.environ
    watched.reads, watched.afresh = preloaded.reads, afresh
    watched.__class__ = Watched
