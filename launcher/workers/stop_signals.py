"""The signals that stop workers: who gets which, when, and what it means if they go on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

REAPING = 5.0
"""Seconds between two looks for orphans that have ended, as a container's first process."""
ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL}
"""Signals after which a worker isn't meant to go on."""


@dataclass(slots=True)
class Stops:
    """The signals that the workers have got and will get.

    Attributes:
        pids: process of each rank, the leader of its group.
        told: signals that have been sent to each rank.
        deadlines: when which rank gets which signal, in seconds of the monotonic clock.
    """

    pids: dict[int, int] = field(default_factory=dict)
    told: dict[int, set[int]] = field(default_factory=dict)
    deadlines: list[tuple[float, int, signal.Signals]] = field(default_factory=list)

    def schedule(self, ranks: Iterable[int], *steps: tuple[signal.Signals, float]) -> None:
        """Plans signals for ranks, each so many seconds from now."""
        now = time.monotonic()
        self.deadlines += [(now + delay, rank, step) for rank in ranks for step, delay in steps]

    @property
    def planned(self) -> set[int]:
        """Ranks that have a signal before them."""
        return {rank for _, rank, _ in self.deadlines}

    def hasten(self) -> None:
        """Moves all that is planned so far forward that the next signal is due now."""
        now = time.monotonic()
        soonest = min((moment for moment, _, _ in self.deadlines), default=now)
        self.deadlines = [(at - (soonest - now), rank, step) for at, rank, step in self.deadlines]

    def pause(self) -> float | None:
        """Seconds until the next signal is due; None where none is planned."""
        if not self.deadlines:
            return REAPING if os.getpid() == 1 else None
        return max(0.0, min(self.deadlines)[0] - time.monotonic())

    def send_due(self, alive: set[int], notice: Callable[[str], None]) -> None:
        """Sends the signals whose time has come, and says who has gone on after the last one."""
        now = time.monotonic()
        due = sorted(one for one in self.deadlines if one[0] <= now)
        self.deadlines = [one for one in self.deadlines if one[0] > now and one[1] in alive]
        for _, rank, step in due:
            if rank not in alive:
                continue
            ignored = sorted(self.told.get(rank, set()) & ENDING)
            if ignored:
                names = ", ".join(signal.Signals(number).name for number in ignored)
                notice(f"rank {rank} goes on after {names}: sending {step.name}")
            self.send(rank, step)

    def send(self, rank: int, number: signal.Signals) -> None:
        """Signals a worker and everything in its process group.

        Under versions of torch elastic that start workers in the launcher's own group, the worker
        alone.
        """
        self.told.setdefault(rank, set()).add(number)
        pid = self.pids[rank]
        with suppress(ProcessLookupError):
            if os.getpgid(pid) == pid:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)

    def catches(self, rank: int, number: signal.Signals) -> bool:
        """Whether a worker has a handler for a signal (`SigCgt` in proc_pid_status(5))."""
        with suppress(OSError, ValueError):
            for line in Path(f"/proc/{self.pids[rank]}/status").read_text().splitlines():
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
        return False
