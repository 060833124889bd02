"""What the launchers of a job say to each other; plain values, which pass through JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..checkpoints.checkpoint import Resume, Saves
from ..core.hardware import Hardware
from ..core.settings import Setting, Value
from ..evidence.failure_record import FailureRecord


@dataclass(frozen=True, slots=True)
class Hello:
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


@dataclass(frozen=True, slots=True)
class Admitted:
    """A node may take part: it is one of so many that are here, of so many that may come."""

    here: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Welcome:
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


@dataclass(frozen=True, slots=True)
class Refusal:
    """A node can't take part: its exit code, what is wrong and what to do."""

    code: int
    problem: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Order:
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


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the workers: as after a failure, or, where a signal has come, as it says.

    Attributes:
        signal: what a launcher was told to stop by.
        again: it was told so once more; the workers' next, harder step is due.
    """

    signal: int | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a node's workers have reported before the first step."""

    observed: Mapping[str, Value]
    model: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Signalled:
    """A node's launcher was told to stop by a signal; `again` where not for the first time."""

    signal: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class Failing:
    """Workers of a node have failed; the others are being stopped.

    Attributes:
        records: what they told.
        now: the node's monotonic clock when this was sent, in seconds.
    """

    records: tuple[FailureRecord, ...]
    now: float


@dataclass(frozen=True, slots=True)
class Ended:
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


@dataclass(frozen=True, slots=True)
class Farewell:
    """The run is over.

    Attributes:
        code: every launcher's exit code.
        line: why, in a few words.
        diagnosis: what a pod's status is to say of it; empty where the words say it all.
    """

    code: int
    line: str = ""
    diagnosis: str = ""


Message = (
    Hello
    | Admitted
    | Welcome
    | Refusal
    | Order
    | Stop
    | Sighting
    | Signalled
    | Failing
    | Ended
    | Farewell
)
Kinds = Mapping[str, type[Message]]
"""Messages by the name under which they travel."""
FROM_HEAD: Kinds = MappingProxyType(
    {kind.__name__: kind for kind in (Admitted, Welcome, Refusal, Order, Stop, Farewell)}
)
"""What node 0 says."""
FROM_OTHERS: Kinds = MappingProxyType(
    {kind.__name__: kind for kind in (Hello, Refusal, Sighting, Signalled, Failing, Ended)}
)
"""What the other nodes say to it."""


@dataclass(frozen=True, slots=True)
class Part:
    """What became of an attempt on the nodes that this one knows of: all, for node 0.

    Attributes:
        ended: how each node's workers ended, by the node's rank.
        lost: nodes that can't be reached any more: when that was noticed, in seconds of this host's
            monotonic clock, and a sentence that says which and why.
        failing: what nodes told of failures before their workers had ended.
        observed: settings in force and facts that the workers have seen.
        model: the model as the first worker described it.
        is_superseded: the attempt was stopped for what the workers have seen.
        saves: where the Trainer of this node's first rank saves.
    """

    ended: Mapping[int, Ended]
    lost: Mapping[int, tuple[float, str]] = field(default_factory=lambda: MappingProxyType({}))
    failing: Mapping[int, tuple[FailureRecord, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    observed: Mapping[str, Value] = field(default_factory=lambda: MappingProxyType({}))
    model: dict[str, Any] | None = None
    is_superseded: bool = False
    saves: Saves | None = None
