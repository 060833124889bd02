"""The workers of this node during one attempt: their state, and how they ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

from ..checkpoints.checkpoint import Saves
from ..core.settings import Value
from ..evidence.failure_record import FailureRecord
from ..machine.host import oom_kills
from .output import Output


@dataclass(slots=True)
class NodeWorkers:
    """The workers of this node during one attempt.

    Attributes:
        pids: process id of each rank of this node.
        exits: exit code of each rank that has ended, -N for signal N, and when that was seen.
        failing: the first report of a failure by each rank.
        records: all failure records, by rank.
        finished: ranks whose script ran to its end.
        exiting: those that have only to exit, at which nothing of the script's runs any more but
            exit handlers.
        finalizing: exiting ranks whose exit handlers have run, too.
        hung: those that hung while they exited, with the seconds after which they were ended.
        observed: the workers' observations.
        model: the model as the first worker described it.
        saves: where the Trainer of each rank saves.
        oom_kills: how often the out-of-memory killer had struck before the attempt.
    """

    pids: Mapping[int, int]
    alive: set[int]
    exits: dict[int, tuple[int, float]] = field(default_factory=dict)
    failing: dict[int, FailureRecord] = field(default_factory=dict)
    records: dict[int, FailureRecord] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    exiting: set[int] = field(default_factory=set)
    finalizing: set[int] = field(default_factory=set)
    hung: Mapping[int, float] = field(default_factory=dict)
    observed: dict[str, Value] = field(default_factory=dict)
    model: dict[str, Any] | None = None
    saves: dict[int, Saves] = field(default_factory=dict)
    oom_kills: int = field(default_factory=oom_kills)

    def note_exit(self, rank: int, code: int) -> None:
        """Notes that a rank has ended, with its exit code, -N for signal N."""
        self.exits[rank] = (code, time.monotonic())
        self.alive.discard(rank)

    def failed(self) -> set[int]:
        """Ranks that have certainly failed; a death after the script's end isn't a failure."""
        dead = {
            rank
            for rank, (code, _) in self.exits.items()
            if code > 0 or (code < 0 and rank not in self.finished)
        }
        return dead | self.records.keys() | (self.failing.keys() & self.exits.keys())

    def leaving(self, at_end: Set[int] = frozenset()) -> set[int]:
        """Ranks that still run, if every rank of this node has only to exit.

        Those `at_end`, which hang as their objects are destroyed, are included in any case.
        """
        rest = self.pids.keys() - self.finished - self.exits.keys()
        return self.alive & (at_end if rest else self.exiting | at_end)

    def remarks(self) -> tuple[str, ...]:
        """Sentences on what happened to workers after their script's end."""
        return tuple(
            self._remark(rank, signal.Signals(-code))
            for rank, (code, _) in sorted(self.exits.items())
            if code < 0
        )

    def _remark(self, rank: int, number: signal.Signals) -> str:
        if rank not in self.hung:
            return f"rank {rank} was ended by {number.name} after its script had finished"
        return (
            f"rank {rank} had finished training and hung in native code as it exited: it was ended "
            f"by the launcher after {self.hung[rank]:.0f} s"
        )

    def failures(self, sent: Mapping[int, set[int]], output: Output) -> tuple[FailureRecord, ...]:
        """A record of each rank that has failed by itself, the earliest first."""
        killed = oom_kills() - self.oom_kills
        records = []
        for rank in sorted(self.exits):
            record = self._record(rank, is_stopped=-self.exits[rank][0] in sent.get(rank, set()))
            if record is not None:
                tail = output.tail(rank)
                place, pid = rank - min(self.pids), self.pids[rank]
                records.append(
                    replace(record, oom_kills=killed, log_tail=tail, local_rank=place, pid=pid)
                )
        return tuple(sorted(records, key=lambda record: record.at))

    def _record(self, rank: int, *, is_stopped: bool) -> FailureRecord | None:
        """A rank's record, or one made from its exit; None if it ended well or was stopped."""
        code, seen = self.exits[rank]
        begun = self.failing.get(rank)
        sent = self.records.get(rank, begun if is_stopped else None)
        if sent is not None:
            # The script's own excepthook may have ended the process with another code; one that
            # was interrupted meanwhile is Python's.
            own_end = 0 < code != 128 + signal.SIGINT and not is_stopped
            return replace(sent, exit_code=code) if own_end else sent
        ended_well = code == 0 or (code < 0 and rank in self.finished)
        if begun is None and (ended_well or is_stopped):
            return None
        return replace(
            begun or FailureRecord(rank, seen),
            exit_code=128 - code if code < 0 else code,
            signal=-code if code < 0 else None,
        )
