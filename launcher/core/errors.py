"""The launcher's exit codes."""

from __future__ import annotations

import signal
from enum import IntEnum

from .reasons import hint_of, reason_of

EXPLAINED = "safe-launch explain wrong-loss"
"""The command that lists what to try if a training is wrong without an error."""


class ExitCode(IntEnum):
    """The launcher's own exit codes, which are stable; `MEANINGS` explains them.

    Any other code is the failed worker's, 128 + N if signal N killed it. The numbers follow
    sysexits.h, whose range scripts hardly use.
    """

    SUCCESS = 0
    USAGE = 64
    INTERNAL = 70
    CANNOT_WRITE = 73
    RETRY_ELSEWHERE = 75
    NO_PLAN = 78


MEANINGS = {
    ExitCode.SUCCESS: "the script ran to its end on every rank",
    ExitCode.USAGE: "the command line, the script or a configuration file can't be used as it is",
    ExitCode.INTERNAL: "a bug in safe-launch",
    ExitCode.CANNOT_WRITE: "the run directory, or the output, can't be written",
    ExitCode.RETRY_ELSEWHERE: "a node is at fault, lost or never joined; try another allocation",
    ExitCode.NO_PLAN: "no settings that are known to work are left",
}
"""The meanings of the launcher's own exit codes, one line each."""


def meaning(code: int) -> str:
    """The meaning of one of the launcher's exit codes."""
    if code in MEANINGS:
        return MEANINGS[ExitCode(code)]
    try:
        name = signal.Signals(code - 128).name
    except ValueError:
        return "the failed worker's own"
    if name in ("SIGINT", "SIGTERM", "SIGHUP"):
        return f"stopped by {name}"
    return f"a worker was ended by {name}"


class LaunchError(Exception):
    """An error that the user must fix before anything can be launched.

    Attributes:
        problem: what is wrong, with the setting or file and line.
        hint: what to do; empty if none is needed.
        code: the launcher's exit code.
    """

    def __init__(self, problem: str, hint: str = "", *, code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint
        self.code = code

    @staticmethod
    def because(
        cause: BaseException, problem: str, hint: str = "", *, code: ExitCode = ExitCode.USAGE
    ) -> LaunchError:
        """The error that another one causes, whose reason follows the problem."""
        return LaunchError(f"{problem}: {reason_of(cause)}", hint_of(cause, hint), code=code)
