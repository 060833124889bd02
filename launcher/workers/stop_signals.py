"""Sends workers the signals that are due, and notes which were sent."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from ..hangs import proc
from ..system import signals
from .stop_policy import Steps

ENDING = {*signals.ENDING, signal.SIGKILL}
"""Signals after which a worker isn't meant to run on."""


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
