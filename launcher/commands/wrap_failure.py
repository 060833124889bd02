"""The exceptions of a failed launch in the tool that has called `torch.distributed.run`.

They are torch's own: tools catch them to clean up and to report. If nothing catches them, the tool
ends with the launch's exit code and without torch's table, as safe-launch has reported the failure.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import TracebackType

from ..evidence.failed_workers import FailedWorker
from ..system.signals import ENDING


def error_of(script: str, pid: int, code: int, failed: Sequence[FailedWorker]) -> Exception:
    """The exception torch raises for this end: ChildFailedError, or SignalException after a stop.

    The `failed` workers are those of this node, the earliest first. Without any, the failed process
    is the launch's own, `pid`, with rank -1.
    """
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    error: Exception
    if not failed and code - 128 in ENDING:
        number = signal.Signals(code - 128)
        error = SignalException(f"Process {os.getpid()} got signal: {number}", sigval=number)
        return error
    failures = {worker.rank: ProcessFailure(*worker.process) for worker in failed}
    for worker in failed:
        failures[worker.rank].timestamp = int(worker.time)
    if not failures:
        failures[-1] = ProcessFailure(-1, pid, code, "")
        failures[-1].message = f"safe-launch ended with exit code {code}"
    error = ChildFailedError(script, failures)
    return error


def end_quietly(error: Exception, code: int) -> None:
    """Makes the process end with the exit code, and print nothing, if the error isn't caught."""
    earlier = sys.excepthook

    def hook(
        kind: type[BaseException], raised: BaseException, traceback: TracebackType | None
    ) -> None:
        if raised is error:
            raise SystemExit(code)
        earlier(kind, raised, traceback)

    sys.excepthook = hook
