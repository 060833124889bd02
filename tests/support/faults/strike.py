"""Waits for a trial's moment, and brings its fault about."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from support.faults.job import Job

PATIENCE = 400.0
"""Seconds within which the moment must have come; the machine may be busy."""
PAUSE = 2.0
"""Seconds for which somebody is stopped; less than half of the node timeout."""
OUTAGE = 1.5
"""Seconds for which a host is cut off; less than half of the node timeout."""


def strike(job: Job) -> float | None:
    """When the fault was brought about; None if the launchers have ended before."""
    if job.trial.fault == "descriptors":  # the limit holds from the launch on
        return time.monotonic()
    end, is_due = time.monotonic() + PATIENCE, False
    kind, _, _ = job.trial.fault.partition("-")
    while not job.has_ended and time.monotonic() < end:
        if not _targets(job):
            time.sleep(0.01)
        elif not is_due:
            time.sleep(job.trial.delay)
            is_due = True
        else:
            struck = time.monotonic()
            if STRIKES[kind](job, _targets(job)):
                return struck
    return None


def _targets(job: Job) -> Sequence[int]:
    """Processes to hit, once the moment has come: for faults of hosts and disks the launcher."""
    trial = job.trial
    if trial.fault.endswith("-rank"):
        return job.marks(*_place(trial.moment), trial.rank)
    if not _has_come(job):
        return []
    whom = trial.fault.partition("-")[2]
    if whom in ("server", "store", "guardian"):
        return job.ours(whom)
    guardian = job.ours("guardian") if whom == "both" else [job.target.pid]
    return [job.target.pid, *guardian] if guardian else []


def _place(moment: str) -> tuple[str, int]:
    """The mark that a rank leaves when the moment has come, and the attempt."""
    return ("imports", 1) if moment == "relaunch" else (moment, 0)


def _has_come(job: Job) -> bool:
    """Whether the moment has come on the host that is hit."""
    match job.trial.moment:
        case "start":
            return True
        case "imports":
            return bool(job.ours("server") or job.marks("imports", 0))
        case "relaunch":
            return any((job.folder / "marks").glob("relaunch-*"))
        case moment:
            return bool(job.marks(moment, 0))


def _send(pids: Sequence[int], number: signal.Signals) -> bool:
    reached = 0
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            reached += 1
    return reached > 0


def _kill(_job: Job, pids: Sequence[int]) -> bool:
    return _send(pids, signal.SIGKILL)


def _stop(job: Job, pids: Sequence[int]) -> bool:
    return _send(pids, signal.Signals[job.trial.fault])


def _pause(_job: Job, pids: Sequence[int]) -> bool:
    is_reached = _send(pids, signal.SIGSTOP)
    time.sleep(PAUSE)
    _send(pids, signal.SIGCONT)
    return is_reached


def _hold(job: Job, pids: Sequence[int]) -> bool:
    is_reached = _send(pids, signal.SIGSTOP)
    if job.trial.fault != "hold-guardian":
        time.sleep(1)
        _send([job.target.pid], signal.SIGTERM)
    return is_reached


def _cut(job: Job, _pids: Sequence[int]) -> bool:
    job.hosts[job.trial.node].weather(loss=1)
    return True


def _unplug(job: Job, _pids: Sequence[int]) -> bool:
    job.hosts[job.trial.node].unplug()
    return True


def _outage(job: Job, pids: Sequence[int]) -> bool:
    _cut(job, pids)
    time.sleep(OUTAGE)
    job.hosts[job.trial.node].weather()
    return True


def _fill(job: Job, _pids: Sequence[int]) -> bool:
    disk = job.disk()
    assert disk is not None
    with suppress(OSError), (disk / "ballast").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return True


def _close(job: Job, _pids: Sequence[int]) -> bool:
    while job.readers:
        os.close(job.readers.pop())
    return True


STRIKES: dict[str, Callable[[Job, Sequence[int]], bool]] = {
    "kill": _kill,
    "SIGTERM": _stop,
    "SIGINT": _stop,
    "SIGHUP": _stop,
    "pause": _pause,
    "hold": _hold,
    "cut": _cut,
    "unplug": _unplug,
    "outage": _outage,
    "full": _fill,
    "closed": _close,
}
"""What brings a fault about, by the first word of its name."""
