"""Signals that stop workers in each case, and their intervals."""

from __future__ import annotations

import signal

from ..core.request import StopTimes

Steps = tuple[tuple[signal.Signals, float], ...]
"""Signals, each with the seconds from now until it is sent."""

HUNG_AT_EXIT: Steps = ((signal.SIGKILL, 0.0),)
"""For a rank that hangs in native code as it exits: no handler can run any more."""


def after_failure(times: StopTimes) -> Steps:
    """For a rank that fails: it may send its record and run its exit handlers, but not for ever."""
    return (signal.SIGTERM, times.leave), (signal.SIGKILL, times.leave + times.terminate)


def after_failure_elsewhere(times: StopTimes) -> Steps:
    """For ranks that still train, or wait for the failed rank: they end at once."""
    return (signal.SIGTERM, 0.0), (signal.SIGKILL, times.leave + times.terminate)


def superseded(times: StopTimes) -> Steps:
    """For an attempt that is superseded: no rank has failed, so none has a record to send."""
    return (signal.SIGTERM, 0.0), (signal.SIGKILL, times.terminate)


def interrupted(number: signal.Signals, times: StopTimes) -> Steps:
    """For a signal to a launcher; Ctrl-C leaves time before SIGTERM."""
    if number != signal.SIGINT:
        return (number, 0.0), (signal.SIGKILL, times.terminate)
    last = (signal.SIGKILL, times.interrupt + times.terminate)
    return (number, 0.0), (signal.SIGTERM, times.interrupt), last


def patience(times: StopTimes, silence: float) -> float:
    """Seconds within which other nodes must have answered a stop."""
    return times.leave + times.interrupt + times.terminate + silence
