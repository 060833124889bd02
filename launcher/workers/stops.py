"""Stops of workers: why they are being stopped, with which signals, and which were sent."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from ..core.request import StopTimes
from ..hangs import proc
from ..system import signals

Steps = tuple[tuple[signal.Signals, float], ...]
"""Signals, each with the seconds from now until it is sent."""
HUNG_AT_EXIT: Steps = ((signal.SIGKILL, 0.0),)
"""For a rank that hangs in native code as it exits: no handler can run any more."""
ENDING = {*signals.ENDING, signal.SIGKILL}
"""Signals after which a worker isn't meant to run on."""


class AttemptState(StrEnum):
    """Whether the workers of an attempt run or are being stopped, and why."""

    RUNNING = "running"
    FINISHED = "finished"
    """Every worker of this node has run the script to its end; other nodes' may still run."""
    FAILED = "stopping after a failure"
    SUPERSEDED = "stopping for the workers' observations"
    BROKEN = "stopping for a fault of the launcher"
    INTERRUPTED = "stopping for a signal"


STOPPING = frozenset(AttemptState) - {AttemptState.RUNNING, AttemptState.FINISHED}
"""States in which the workers are being stopped."""


TRANSITIONS: Mapping[AttemptState, frozenset[AttemptState]] = MappingProxyType(
    {
        AttemptState.RUNNING: STOPPING | {AttemptState.FINISHED},
        AttemptState.FINISHED: STOPPING,  # another node fails, or is stopped
        AttemptState.FAILED: frozenset({AttemptState.INTERRUPTED}),
        AttemptState.SUPERSEDED: frozenset({AttemptState.INTERRUPTED}),
        AttemptState.BROKEN: frozenset({AttemptState.INTERRUPTED}),
        AttemptState.INTERRUPTED: frozenset(),
    }
)
"""The states that may follow each state: a signal interrupts any, and nothing follows that."""


@dataclass(slots=True)
class Progress:
    """The states of one attempt so far; the last is the current one."""

    states: list[AttemptState] = field(default_factory=lambda: [AttemptState.RUNNING])

    @property
    def state(self) -> AttemptState:
        """The current state."""
        return self.states[-1]

    @property
    def is_stopping(self) -> bool:
        """Whether the workers are being stopped."""
        return self.state in STOPPING

    @property
    def has_finished(self) -> bool:
        """Whether every worker of this node ended by itself before any stop."""
        return AttemptState.FINISHED in self.states

    def enter(self, state: AttemptState) -> None:
        """Enters a state.

        Raises:
            RuntimeError: the current state can't be followed by it.
        """
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"an attempt that is {self.state} can't become {state}")
        self.states.append(state)


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


@dataclass(slots=True)
class StopSignals:
    """The signals that were sent to the workers, and those planned.

    Attributes:
        pids: process of each rank, the leader of its group.
        deadlines: when each signal is due at each rank, in seconds of the monotonic clock.
    """

    pids: Mapping[int, int]
    sent: dict[int, set[int]] = field(default_factory=dict)
    deadlines: list[tuple[float, int, signal.Signals]] = field(default_factory=list)

    def schedule(self, ranks: Iterable[int], steps: Steps) -> None:
        """Plans signals for ranks, each after its seconds from now."""
        now = time.monotonic()
        self.deadlines += [(now + delay, rank, step) for rank in ranks for step, delay in steps]

    @property
    def planned(self) -> set[int]:
        """Ranks for which a signal is planned."""
        return {rank for _, rank, _ in self.deadlines}

    def hasten(self) -> None:
        """Moves all planned signals forward so that the next is due now."""
        now = time.monotonic()
        soonest = min((moment for moment, _, _ in self.deadlines), default=now)
        self.deadlines = [(at - (soonest - now), rank, step) for at, rank, step in self.deadlines]

    def pause(self) -> float | None:
        """Seconds until the next signal is due; None if none is planned."""
        if not self.deadlines:
            return None
        return max(0.0, min(self.deadlines)[0] - time.monotonic())

    def send_due(self, alive: set[int], notice: Callable[[str], None]) -> None:
        """Sends the signals that are due; reports ranks that still run after an earlier signal."""
        now = time.monotonic()
        due = sorted(deadline for deadline in self.deadlines if deadline[0] <= now)
        self.deadlines = [
            (at, rank, step) for at, rank, step in self.deadlines if at > now and rank in alive
        ]
        for _, rank, step in due:
            if rank not in alive:
                continue
            ignored = sorted(self.sent.get(rank, set()) & ENDING)
            if ignored:
                names = ", ".join(signal.Signals(number).name for number in ignored)
                notice(f"rank {rank} is still running after {names}: sending {step.name}")
            self.send(rank, step)

    def send(self, rank: int, number: signal.Signals) -> None:
        """Signals a worker and everything in its process group.

        A process that was stopped (SIGSTOP) is continued, or it could not act on the signal.
        Only the worker, if torch elastic has started it in the launcher's own process group, as
        some versions do.
        """
        self.sent.setdefault(rank, set()).add(number)
        pid = self.pids[rank]
        with suppress(ProcessLookupError):
            signal_all = os.killpg if os.getpgid(pid) == pid else os.kill
            for step in (number, signal.SIGCONT) if number in signals.ENDING else (number,):
                signal_all(pid, step)

    def forward(
        self, number: signal.Signals, alive: Iterable[int], notice: Callable[[str], None]
    ) -> None:
        """Passes a signal on to the workers that have a handler for it; reports the others."""
        for rank in sorted(alive):
            if self.catches(rank, number):
                self.send(rank, number)
            else:
                notice(f"{number.name} isn't passed on: rank {rank} has no handler for it")

    def catches(self, rank: int, number: signal.Signals) -> bool:
        """Whether a worker has a handler for a signal (`SigCgt` in proc_pid_status(5))."""
        with suppress(OSError, ValueError, KeyError):
            return proc.has_signal(proc.status(self.pids[rank])["SigCgt"], number)
        return False
