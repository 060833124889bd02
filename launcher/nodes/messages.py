"""The messages between the launchers of a job: tagged structs, sent as JSON."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Annotated

from ..checkpoints.checkpoint import Resume
from ..checks.between_ranks import Compared
from ..checks.finding import Finding
from ..core.limits import (
    NODES,
    SETTINGS,
    WORKERS,
    Attempts,
    Code,
    Limit,
    Line,
    Moment,
    Paragraphs,
    Rank,
    Settings,
    Shape,
    Word,
    number,
)
from ..core.settings import Setting, Value
from ..evidence.failure_record import FailureRecord
from ..evidence.worker_messages import Answer
from ..evidence.worker_messages import Ask as Question
from ..hangs.standing import Standing
from ..progress.board import RankProgress
from .joining import Accepted, Join, Refusal, RunStarted, Unable
from .sent import LARGE, OUTSIDE, OtherNode, RunId, Sent, StopSignal

PlanSettings = Annotated[Mapping[Setting, Value], SETTINGS]
WorkerCounts = Annotated[
    tuple[int, ...],
    Limit("numbers of workers", lambda counts: all(0 < count <= WORKERS for count in counts)),
]


def _strange(records: tuple[FailureRecord, ...], standings: tuple[Standing, ...] = ()) -> str:
    """The rule that a node's records or standings break, as a clause; empty if none."""
    if any(record.rank is None for record in records):
        return "each record is a worker's"
    has_host = any(standing.host for standing in standings)
    return "a connection says whose it is" if has_host else ""


class Order(Sent, frozen=True, tag=True):
    """Start the workers of an attempt.

    Attributes:
        attempt: its number, 0 for the first.
        rank: rank of the node that receives this.
        workers: the number of workers of each node, by rank.
        port: the store's port, at the address by which this node has found node 0.
        preset: the settings of the plan.
        overrides: the settings among them that the guards enforce.
        replaced: the script's own values of the overrides, if known.
        resume: the checkpoint to resume from; None for the script's own choice.
    """

    MOST = 1 << 20
    attempt: Attempts
    run_id: RunId
    rank: OtherNode
    workers: WorkerCounts
    port: Annotated[int, number(1, 65535)]
    preset: PlanSettings
    overrides: PlanSettings
    replaced: PlanSettings
    resume: Resume | None = None

    def contradiction(self) -> str:
        """The rank is one of the nodes', and enforced settings are in the plan."""
        if not self.rank < len(self.workers) <= NODES:
            return OUTSIDE
        is_planned = self.overrides.items() <= self.preset.items()
        return "" if is_planned else "enforced settings are in the plan"

    @property
    def first(self) -> int:
        """Rank of this node's first worker."""
        return self.ranks.start

    @property
    def ranks(self) -> range:
        """Ranks of this node's workers."""
        return self.spans[self.rank]

    @property
    def spans(self) -> tuple[range, ...]:
        """The ranks of each node."""
        ends = tuple(itertools.accumulate(self.workers))
        return tuple(range(end - count, end) for count, end in zip(self.workers, ends, strict=True))

    @property
    def world(self) -> int:
        """The number of workers of all nodes."""
        return sum(self.workers)


class Stop(Sent, frozen=True, tag=True):
    """Stop the workers: as after a failure, or as the signal requires.

    Attributes:
        signal: the signal that stopped a launcher; None after a failure.
        again: the signal was repeated; the workers' next, harder step is due.
    """

    signal: StopSignal | None = None
    again: bool = False


class NodeObserved(Sent, frozen=True, tag=True):
    """Observations of a node's workers before the first step."""

    MOST = LARGE
    observed: Settings
    model: Shape | None = None


class OfWorker(Sent, frozen=True):
    """A message from a worker of a node, or to it."""

    rank: Rank

    @property
    def reported(self) -> set[int | None]:
        """The worker's rank."""
        return {self.rank}


class NodeAsk(OfWorker, frozen=True, tag=True):
    """A worker of a node asks at a boundary."""

    MOST = LARGE
    question: Question


class NodeAnswer(OfWorker, frozen=True, tag=True):
    """Node 0's answer to a worker of a node."""

    answer: Answer


class NodeWentOn(OfWorker, frozen=True, tag=True):
    """A worker of a node has got no answer in time."""

    key: Word


class NodeFound(OfWorker, frozen=True, tag=True):
    """A check has found something in a worker of a node."""

    finding: Finding

    def contradiction(self) -> str:
        """The message has the rank."""
        return "a finding has no ranks" if self.finding.ranks else ""


class NodeCompared(OfWorker, frozen=True, tag=True):
    """A worker's value of a quantity compared between all ranks."""

    compared: Compared


class Signalled(Sent, frozen=True, tag=True):
    """A node's launcher got a signal to stop; `again` if it is a repeated one."""

    signal: StopSignal
    again: bool = False


class Failing(Sent, frozen=True, tag=True):
    """Workers of a node have failed; the others are being stopped.

    Attributes:
        now: the node's monotonic clock when this was sent, in seconds.
    """

    MOST = LARGE
    records: tuple[FailureRecord, ...]
    now: Moment

    def contradiction(self) -> str:
        """The records are workers'."""
        return _strange(self.records)


class Ended(Sent, frozen=True, tag=True):
    """All workers of the attempt have ended on a node.

    Attributes:
        is_success: every worker has run the script to its end.
        records: the record of each worker that failed by itself.
        remarks: sentences on what happened after the script's end.
        signal: the signal that stopped the node's launcher; None if there was none.
        now: the node's monotonic clock when this was sent, in seconds.
        standings: where its ranks stood by their recorders' dumps, if they have left any.
    """

    MOST = LARGE
    is_success: bool
    records: tuple[FailureRecord, ...] = ()
    remarks: tuple[str, ...] = ()
    signal: StopSignal | None = None
    now: Moment = 0.0
    standings: tuple[Standing, ...] = ()

    def contradiction(self) -> str:
        """A success has no failures, and the records are workers' of this node."""
        if self.is_success and self.records:
            return "a success has no failures"
        return _strange(self.records, self.standings)


class Ping(Sent, frozen=True, tag=True):
    """A sign of life of node 0's launcher, which wants one in return."""


class Pong(Sent, frozen=True, tag=True):
    """A sign of life of a node's launcher: its ranks' progress."""

    MOST = LARGE
    progress: tuple[RankProgress, ...] = ()


class Ask(Sent, frozen=True, tag=True):
    """Node 0 asks a node where its ranks stand; a node asks node 0 for a report on all ranks."""


class Standings(Sent, frozen=True, tag=True):
    """The positions of a node's ranks."""

    MOST = LARGE
    standings: tuple[Standing, ...] = ()

    def contradiction(self) -> str:
        """The standings are of this node."""
        return _strange((), self.standings)


class RunEnded(Sent, frozen=True, tag=True):
    """The run is over.

    Attributes:
        code: every launcher's exit code.
        line: why, in a few words.
        diagnosis: the text for a pod's status; empty if `line` is enough.
    """

    code: Code
    line: Paragraphs = ""
    diagnosis: Line = ""


FromHead = Accepted | RunStarted | Refusal | Order | Stop | Ping | Ask | NodeAnswer | RunEnded
"""The messages from node 0."""
FromCallers = Join | Unable | Refusal
"""The first messages of an unknown launcher to node 0."""
FromOthers = (
    Join
    | Unable
    | Refusal
    | NodeObserved
    | NodeAsk
    | NodeWentOn
    | NodeFound
    | NodeCompared
    | Signalled
    | Failing
    | Ask
    | Pong
    | Standings
    | Ended
)
"""The messages to node 0."""
Message = FromHead | FromOthers
