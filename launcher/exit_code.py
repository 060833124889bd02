"""The launcher's exit codes."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the launcher's own exit codes mean; they stay as they are.

    Any other code is the failed worker's own, 128 + N if signal N killed it. The numbers follow
    sysexits.h, whose range scripts hardly ever use.
    """

    SUCCESS = 0
    """The script ran to its end on every rank."""
    USAGE = 64
    """The command line, the script or a configuration file can't be used as it is."""
    INTERNAL = 70
    """A mistake of safe-launch itself; what to report is printed."""
    CANNOT_WRITE = 73
    """The run directory can't be written."""
    RETRY_ELSEWHERE = 75
    """The node is at fault: the same job may succeed on another."""
    NO_PLAN = 78
    """Nothing that is known to work is left to launch."""


class LaunchError(Exception):
    """Something that a person must mend before anything can be launched.

    Attributes:
        code: what the launcher exits with.
        problem: what is wrong, with the setting or file and line.
        hint: what to do; empty where the problem says it all.
    """

    def __init__(self, code: ExitCode, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.code = code
        self.problem = problem
        self.hint = hint
