"""Detects ranks that hang in native code as they exit, after their training.

Seen with torch 2.13 and gloo: a native thread is joined with the interpreter's lock held, and the
thread waits for that lock. With torch 2.11 and NCCL, a process group that the script leaves to the
interpreter never comes down. The training is complete by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field

from ..hangs import proc
from ..hangs.standing import ENDED_STATES, LEAST_IO, WORKS

FACTOR = 5
"""Times the patience for which a rank must have done nothing before it is ended; 1 once its exit
handlers have run, since no code of a tracker or the user is left."""
WAITING = "S"
"""The state of a process that sleeps in the kernel and can be interrupted (proc_pid_stat(5))."""


@dataclass(frozen=True, slots=True)
class Traces:
    """Figures that hardly change while a process waits.

    Attributes:
        at: time of the reading, in seconds of the monotonic clock.
        switches: how often its main thread has given up a processor.
        cpu: processor seconds that all its threads have used.
        moved: bytes that it has read and written.
    """

    at: float
    switches: int
    cpu: float
    moved: int

    def has_waited_since(self, earlier: Traces, *, may_poll: bool) -> bool:
        """Whether its main thread has stood still, and the others have done next to nothing.

        Gloo's and NCCL's threads wake up some hundred times a second just to poll. With `may_poll`
        the main thread's wakeups don't count either: it is certainly in native code.
        """
        return (
            (may_poll or self.switches == earlier.switches)
            and self.cpu - earlier.cpu <= WORKS * (self.at - earlier.at)
            and self.moved - earlier.moved < LEAST_IO
        )


def look_interval(patience: float) -> float:
    """Seconds between two looks at ranks whose standstill is reported after `patience` seconds."""
    return min(5.0, max(patience / 5, 0.2))


def traces_of(pid: int) -> Traces | None:
    """A process's traces; None if it has ended, works, is held, or waits for a child."""
    process, *children = proc.trees([pid]).get(pid) or (None,)
    if process is None or process.state != WAITING:
        return None
    if any(child.state not in ENDED_STATES for child in children):
        return None
    with suppress(OSError, ValueError, KeyError):
        switches = int(proc.status(pid)["voluntary_ctxt_switches"])
        moved = max(process.called, process.fetched)
        return Traces(time.monotonic(), switches, process.cpu, moved)
    return None


@dataclass(slots=True)
class ExitWatch:
    """The watch over the ranks of a node that have only to exit.

    Attributes:
        pids: the process of each rank.
        patience: `HangTimes.report`: seconds until a standstill is reported; 0 for never.
        hung: ranks that were given up, each with the seconds for which it had stood still.
    """

    pids: Mapping[int, int]
    patience: float
    notice: Callable[[str], None]
    hung: dict[int, float] = field(default_factory=dict)
    _due: float = 0.0
    _first: dict[int, Traces] = field(default_factory=dict)  # of each rank's standstill
    _reported: set[int] = field(default_factory=set)

    def pause(self, leaving: Iterable[int]) -> float | None:
        """Seconds until the next look; None if no rank is watched."""
        is_needed = self.patience > 0 and any(rank not in self.hung for rank in leaving)
        return max(0.0, self._due - time.monotonic()) if is_needed else None

    def check(self, leaving: Iterable[int], finalizing: Set[int] = frozenset()) -> set[int]:
        """Looks, if it is due, at ranks that have only to exit; returns those to be ended.

        The exit handlers of the `finalizing` ones have run.
        """
        now = time.monotonic()
        if self.patience <= 0 or now < self._due:
            return set()
        self._due = now + look_interval(self.patience)
        given_up = set()
        for rank in set(leaving) - self.hung.keys():
            quiet = self._quiet(rank, may_poll=rank in finalizing)
            limit = self.patience * (1 if rank in finalizing else FACTOR)
            if quiet >= limit:
                self.hung[rank] = quiet
                given_up.add(rank)
            elif quiet >= self.patience and rank not in self._reported:
                self._reported.add(rank)
                self.notice(
                    f"rank {rank} has finished training, but hangs in native code as it exits: "
                    f"nothing has moved for {quiet:.0f} s. It is ended in {limit - quiet:.0f} s; "
                    "nothing of the training is lost"
                )
        return given_up

    def _quiet(self, rank: int, *, may_poll: bool) -> float:
        """Seconds for which a rank has stood still while watched."""
        traces, first = traces_of(self.pids[rank]), self._first.get(rank)
        if traces and first and traces.has_waited_since(first, may_poll=may_poll):
            return traces.at - first.at
        self._first.pop(rank, None)
        if traces is not None:
            self._first[rank] = traces
        return 0.0
