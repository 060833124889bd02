"""What the launchers of a job say to each other: values that travel as JSON, told by a tag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ..checkpoints.checkpoint import Resume
from ..core.hardware import Hardware
from ..core.settings import Setting, Value
from ..evidence.failure_record import FailureRecord


class Join(Struct, frozen=True, tag=True):
    """A node comes: who it is and what it has.

    Attributes:
        job: what the launchers of one job have in common.
        rank: its rank; None where node 0 is to number it.
        host: its name.
        nproc: workers that it starts.
        hardware: what it trains on, without the variables of its profile.
        versions: versions of safe-launch, Python and the frameworks, by name.
        script: digest of the script's text; empty where it is a module or a program.
        arguments: digest of the script's arguments.
        nnodes: how many nodes there are to be, as it has been told: `2` or `1:2`.
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


class Accepted(Struct, frozen=True, tag=True):
    """A node may take part: it is one of so many that are here, of so many that may come."""

    here: int
    nodes: int


class RunStarted(Struct, frozen=True, tag=True):
    """All nodes have come.

    Attributes:
        run_id: the run's id.
        rank: rank of the node that is told.
        nodes: how many they are.
        devices: names of the profiles of all nodes' devices: where they differ, every worker needs
            the variables of all, which each node reads from its own copy of the profiles.
    """

    run_id: str
    rank: int
    nodes: int
    devices: tuple[str, ...] = ()


class Refusal(Struct, frozen=True, tag=True):
    """A node can't take part: its exit code, what is wrong and what to do."""

    code: int
    problem: str
    hint: str = ""


class Order(Struct, frozen=True, tag=True):
    """Start the workers of an attempt.

    Attributes:
        attempt: its number, 0 for the first.
        run_id: the run's id.
        rank: rank of the node that is told.
        workers: workers of each node, in the order of their ranks.
        port: where the workers' process groups meet, at the address by which this node has found
            node 0.
        preset: the settings of the plan.
        overrides: of them those that the guards enforce.
        replaced: what the script itself asks for of the overrides, where that is known.
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
        return sum(self.workers[: self.rank])

    @property
    def ranks(self) -> range:
        """Ranks of this node's workers."""
        return range(self.first, self.first + self.workers[self.rank])

    @property
    def world(self) -> int:
        """Workers of all nodes."""
        return sum(self.workers)


class Stop(Struct, frozen=True, tag=True):
    """Stop the workers: as after a failure, or, where a signal has come, as it says.

    Attributes:
        signal: what a launcher was told to stop by.
        again: it was told so once more; the workers' next, harder step is due.
    """

    signal: int | None = None
    again: bool = False


class NodeObserved(Struct, frozen=True, tag=True):
    """What a node's workers have reported before the first step."""

    observed: Mapping[str, Value]
    model: dict[str, Any] | None = None


class Signalled(Struct, frozen=True, tag=True):
    """A node's launcher was told to stop by a signal; `again` where not for the first time."""

    signal: int
    again: bool = False


class Failing(Struct, frozen=True, tag=True):
    """Workers of a node have failed; the others are being stopped.

    Attributes:
        records: what they told.
        now: the node's monotonic clock when this was sent, in seconds.
    """

    records: tuple[FailureRecord, ...]
    now: float


class Ended(Struct, frozen=True, tag=True):
    """No worker of the attempt is left on a node.

    Attributes:
        is_success: every worker has run the script to its end.
        records: one for each that died by itself.
        remarks: what happened after the script's end, in words.
        signal: what the node's launcher was told to stop by; None where nobody did.
        now: the node's monotonic clock when this was sent, in seconds.
    """

    is_success: bool
    records: tuple[FailureRecord, ...] = ()
    remarks: tuple[str, ...] = ()
    signal: int | None = None
    now: float = 0.0


class RunEnded(Struct, frozen=True, tag=True):
    """The run is over.

    Attributes:
        code: every launcher's exit code.
        line: why, in a few words.
        diagnosis: what a pod's status is to say of it; empty where the words say it all.
    """

    code: int
    line: str = ""
    diagnosis: str = ""


FromHead = Accepted | RunStarted | Refusal | Order | Stop | RunEnded
"""What node 0 says."""
FromOthers = Join | Refusal | NodeObserved | Signalled | Failing | Ended
"""What the other nodes say to it."""
Message = FromHead | FromOthers
