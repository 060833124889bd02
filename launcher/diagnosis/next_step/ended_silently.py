"""Advises how to find the error if a log ends without one."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from .step import Basis, Case, Step

KILLED = (
    "Something outside the process killed it, mostly the kernel for want of host memory: `dmesg -T"
    " | grep -i -E 'oom|killed'` on the node, `sacct -j JOB --format=State,MaxRSS` or `kubectl"
    " describe pod` say whether"
)
CRASHED = (
    "Native code crashed: `python -X faulthandler SCRIPT` prints the Python line. Suspect, in this"
    " order, extensions that were built for other versions, a driver, and the hardware; the same"
    " rank or node each time means the hardware"
)
SIGNALS: Mapping[int, str] = {
    signal.SIGKILL: KILLED,
    signal.SIGSEGV: CRASHED,
    signal.SIGILL: CRASHED,
    signal.SIGFPE: CRASHED,
    signal.SIGBUS: (
        "Memory that was mapped couldn't be had, mostly /dev/shm of a container: `docker run"
        " --shm-size=16g` or `--ipc=host`"
    ),
    signal.SIGABRT: (
        "A library gave up, and has said why in the lines above, or in the log of this rank alone"
    ),
    signal.SIGTERM: (
        "Somebody asked it to stop: the scheduler (time limit, preemption), the launcher after"
        " another rank's end, or a person"
    ),
    signal.SIGINT: "Somebody pressed Ctrl+C, or the scheduler sent it: nothing is to be mended",
}
"""The meaning of an exit by signal."""


def ended_silently(case: Case) -> Step | None:
    """The meaning of an end without an error, and how to find the error."""
    record = case.record
    if record.exception or (record.exit_code is None and record.signal is None):
        return None
    number = record.signal
    if number is None and record.exit_code is not None and record.exit_code > 128:
        number = record.exit_code - 128
    if meaning := SIGNALS.get(number or 0):
        return Step(f"{meaning}.")
    who = "the worker" if record.rank is None else f"rank {record.rank}"
    return Step(
        f"Why {who} left isn't in this log: look further up, or in the log of {who} alone. torchrun"
        " writes one for each rank with `--log-dir logs --redirects 3`; diagnose that folder.",
        Basis.OPEN,
    )
