"""The messages between the launchers of a job: tagged structs, sent as JSON."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ..checkpoints.checkpoint import Resume
from ..checks.between_ranks import Compared
from ..checks.finding import Finding
from ..core.hardware import Hardware
from ..core.settings import Setting, Value
from ..evidence.failure_record import FailureRecord
from ..evidence.worker_messages import Answer
from ..evidence.worker_messages import Ask as Question
from ..hangs.standing import Standing
from ..progress.board import RankProgress


class Join(Struct, frozen=True, tag=True):
    """A node joins.

    Attributes:
        job: the job's id, the same for all its launchers.
        rank: the node's rank; None where node 0 assigns it.
        host: its host name.
        nproc: the number of workers that it starts.
        hardware: what it trains on, without the variables of its profile.
        versions: versions of safe-launch, Python and the frameworks, by name.
        script: digest of the script's text, or of the name of a module or a program.
        arguments: digest of the script's arguments.
        nnodes: the number of nodes as given to this node: `2` or `1:2`.
    """

    job: str
    rank: int | None
    host: str
    nproc: int
    hardware: Hardware
    versions: Mapping[str, str]
    script: str
    arguments: str
    nnodes: str = ""


class Unable(Struct, frozen=True, tag=True):
    """A node of the job can't take part, and its launcher ends.

    Attributes:
        job: the job's id, the same for all its launchers.
        rank: the node's rank; None where node 0 would assign it.
        host: its host name.
        code: the launcher's exit code.
        problem: why, as a sentence.
        hint: what to do.
    """

    job: str
    rank: int | None
    host: str
    code: int
    problem: str
    hint: str = ""


class Accepted(Struct, frozen=True, tag=True):
    """The node is accepted: `here` nodes have joined so far, of `nodes` at most."""

    here: int
    nodes: int


class RunStarted(Struct, frozen=True, tag=True):
    """All nodes have joined.

    Attributes:
        run_id: the run's id.
        rank: rank of the node that receives this.
        nodes: the number of nodes.
        devices: names of the profiles of all nodes' devices. Where they differ, every worker needs
            the variables of all, which each node reads from its own copy of the profiles.
    """

    run_id: str
    rank: int
    nodes: int
    devices: tuple[str, ...] = ()


class Refusal(Struct, frozen=True, tag=True):
    """The node can't take part: its exit code, the problem and a hint."""

    code: int
    problem: str
    hint: str = ""


class Order(Struct, frozen=True, tag=True):
    """Start the workers of an attempt.

    Attributes:
        attempt: its number, 0 for the first.
        run_id: the run's id.
        rank: rank of the node that receives this.
        workers: the number of workers of each node, by rank.
        port: the store's port, at the address by which this node has found node 0.
        preset: the settings of the plan.
        overrides: the settings among them that the guards enforce.
        replaced: the script's own values of the overrides, where they are known.
        resume: what a training resumes from; None for the script's own choice.
    """

    attempt: int
    run_id: str
    rank: int
    workers: tuple[int, ...]
    port: int
    preset: Mapping[Setting, Value]
    overrides: Mapping[Setting, Value]
    replaced: Mapping[Setting, Value]
    resume: Resume | None = None

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


class Stop(Struct, frozen=True, tag=True):
    """Stop the workers: as after a failure, or as the signal requires.

    Attributes:
        signal: the signal that stopped a launcher; None after a failure.
        again: the signal was repeated; the workers' next, harder step is due.
    """

    signal: int | None = None
    again: bool = False


class NodeObserved(Struct, frozen=True, tag=True):
    """What a node's workers observed before the first step."""

    observed: Mapping[str, Value]
    model: dict[str, Any] | None = None


class NodeAsk(Struct, frozen=True, tag=True):
    """A worker of a node asks at a boundary."""

    rank: int
    question: Question


class NodeAnswer(Struct, frozen=True, tag=True):
    """Node 0's answer to a worker of a node."""

    rank: int
    answer: Answer


class NodeWentOn(Struct, frozen=True, tag=True):
    """A worker of a node has got no answer in time."""

    rank: int
    key: str


class NodeFound(Struct, frozen=True, tag=True):
    """A check has found something in a worker of a node."""

    rank: int
    finding: Finding


class NodeCompared(Struct, frozen=True, tag=True):
    """What a worker of a node has of something that is compared between all ranks."""

    rank: int
    compared: Compared


class Signalled(Struct, frozen=True, tag=True):
    """A node's launcher got a signal to stop; `again` if it is a repeated one."""

    signal: int
    again: bool = False


class Failing(Struct, frozen=True, tag=True):
    """Workers of a node have failed; the others are being stopped.

    Attributes:
        records: the records of the failures.
        now: the node's monotonic clock when this was sent, in seconds.
    """

    records: tuple[FailureRecord, ...]
    now: float


class Ended(Struct, frozen=True, tag=True):
    """All workers of the attempt have ended on a node.

    Attributes:
        is_success: every worker has run the script to its end.
        records: the record of each worker that failed by itself.
        remarks: sentences on what happened after the script's end.
        signal: the signal that stopped the node's launcher; None where there was none.
        now: the node's monotonic clock when this was sent, in seconds.
        standings: where its ranks stood by their recorders' dumps, if they have left any.
    """

    is_success: bool
    records: tuple[FailureRecord, ...] = ()
    remarks: tuple[str, ...] = ()
    signal: int | None = None
    now: float = 0.0
    standings: tuple[Standing, ...] = ()


class Ping(Struct, frozen=True, tag=True):
    """A sign of life of node 0's launcher, which wants one in return."""


class Pong(Struct, frozen=True, tag=True):
    """A sign of life of a node's launcher: how far its ranks have come."""

    progress: tuple[RankProgress, ...] = ()


class Ask(Struct, frozen=True, tag=True):
    """Nothing moves, or a person wants to know: where do the ranks stand?

    Node 0 asks a node for its own ranks; a node asks node 0 for a report on all.
    """


class Standings(Struct, frozen=True, tag=True):
    """Where each rank of a node stands."""

    standings: tuple[Standing, ...] = ()


class RunEnded(Struct, frozen=True, tag=True):
    """The run is over.

    Attributes:
        code: every launcher's exit code.
        line: why, in a few words.
        diagnosis: the text for a pod's status; empty where `line` says it all.
    """

    code: int
    line: str = ""
    diagnosis: str = ""


FromHead = Accepted | RunStarted | Refusal | Order | Stop | Ping | Ask | NodeAnswer | RunEnded
"""The messages from node 0."""
FromCallers = Join | Unable | Refusal
"""The messages of whoever node 0 doesn't know yet."""
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


def ranks_in(message: Message) -> set[int | None]:
    """The ranks that a message to node 0 tells of."""
    match message:
        case NodeAsk(rank=rank) | NodeWentOn(rank=rank):
            return {rank}
        case NodeFound(rank=rank) | NodeCompared(rank=rank):
            return {rank}
        case Failing(records=records):
            told: tuple[FailureRecord | Standing | RankProgress, ...] = records
        case Ended(records=records, standings=standings):
            told = (*records, *standings)
        case Standings(standings=standings):
            told = standings
        case Pong(progress=progress):
            told = progress
        case _:
            told = ()
    return {one.rank for one in told}
