"""What became of a launch without us: it has trained, or failed, or only torch did at its end.

A script that ends without `destroy_process_group()`, as most do, leaves gloo's threads to an
interpreter that shuts down. Now and then that aborts the process: "terminate called without an
active exception", SIGABRT. More seldom it never ends. It has trained all the same, as safe-launch
says of its own workers (the entry `crash-at-exit`).

torchrun takes the abort for a failure, and at once ends the ranks that still run. Where one of
them still had to write what the script leaves, there is nothing to compare with, and the launch
is cut short: torch's own race as well, but nothing was trained to the end.
"""

from __future__ import annotations

import re
from enum import Enum

AT_EXIT = "terminate called without an active exception"
"""gloo's words. Memory that runs out says "after throwing an instance of"."""
ABORTED = re.compile(rf"{AT_EXIT}|\bSIG(?:ABRT|SEGV)\b|\b(?:exit|return) ?code *[=:] -(?:6|11)\b")
"""How torchrun, accelerate and deepspeed report such an end of a rank."""
OWN_CODES = (-6, -11, 134, 139)
"""The same where no launcher stands between."""


class Verdict(Enum):
    """What became of it."""

    TRAINED = "it trained"
    TRAINED_AND_ABORTED = "it trained; then a process aborted, or never ended, at its exit"
    CUT_SHORT = "a rank aborted at its exit, and torchrun ended the others before they were there"
    FAILED = "it failed"

    @property
    def has_trained(self) -> bool:
        """Whether what it leaves can be compared with."""
        return self in (Verdict.TRAINED, Verdict.TRAINED_AND_ABORTED)


def verdict(code: int | None, said: str, *, is_complete: bool) -> Verdict:
    """Tells what is torch's from what is a failure.

    Args:
        code: of its end; None where it had to be killed.
        said: what it has printed, its ranks as well.
        is_complete: whether all that the script leaves at its end is there.
    """
    has_aborted = code is None or code in OWN_CODES or ABORTED.search(said) is not None
    if is_complete:
        if code == 0:
            return Verdict.TRAINED
        return Verdict.TRAINED_AND_ABORTED if has_aborted else Verdict.FAILED
    return Verdict.CUT_SHORT if code and AT_EXIT in said else Verdict.FAILED
