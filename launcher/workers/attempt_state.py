"""What has happened so far to the workers of this node in an attempt, and what that makes of it."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field, replace
from typing import Any

from ..checkpoints.checkpoint import Saves
from ..core.errors import LaunchError
from ..core.settings import Value
from ..evidence.failure_record import FailureRecord
from ..machine.host import oom_kills
from ..nodes.messages import Ended
from ..system.signals import STOPS
from . import output
from .stop_signals import Stops


@dataclass(slots=True)
class Scene:
    """What has happened so far in the attempt.

    Attributes:
        pids: process of each rank of this node.
        alive: ranks that still run.
        exits: exit code of each rank that is gone, -N for signal N, and when it was seen.
        failing: what ranks said at once of a failure, by rank.
        records: all that they told of it then.
        finished: ranks whose script ran to its end.
        observed: what the workers have seen.
        model: the model as the first worker described it.
        saves: where the Trainer of this node's first rank saves.
        signals: signals that this launcher was sent, in their order.
        ordered: the signal by which another node's launcher was told to stop.
        is_hastened: another node's launcher was told so once more.
        is_told: another node has said that the workers are to be stopped.
        told: what node 0 has been told of the sightings: how many there were, and of the model.
        fault: what the launcher itself has failed of; None where it hasn't.
        reason: why the workers are being stopped; None while they run.
        is_success: the workers of this node have run the script to its end.
        stops: the signals that the workers have got and will get.
        oom_kills: how often the out-of-memory killer had struck before.
    """

    pids: dict[int, int]
    alive: set[int]
    exits: dict[int, tuple[int, float]] = field(default_factory=dict)
    failing: dict[int, FailureRecord] = field(default_factory=dict)
    records: dict[int, FailureRecord] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    observed: dict[str, Value] = field(default_factory=dict)
    model: dict[str, Any] | None = None
    saves: Saves | None = None
    signals: list[int] = field(default_factory=list)
    ordered: int | None = None
    is_hastened: bool = False
    is_told: bool = False
    told: tuple[int, bool] = (0, True)
    fault: LaunchError | None = None
    reason: str | None = None
    is_success: bool = False
    stops: Stops = field(default_factory=Stops)
    oom_kills: int = field(default_factory=oom_kills)

    @property
    def own_stops(self) -> list[int]:
        """The signals that this launcher was told to stop by, in their order."""
        return [number for number in self.signals if number in STOPS]


def failed_ranks(scene: Scene) -> set[int]:
    """Ranks that have failed for certain; dying after the script's end isn't failing."""
    dead = {
        rank
        for rank, (code, _) in scene.exits.items()
        if code > 0 or (code < 0 and rank not in scene.finished)
    }
    return dead | scene.records.keys() | (scene.failing.keys() & scene.exits.keys())


def ended(scene: Scene, pipes: output.Output) -> Ended:
    """How this node's workers ended."""
    remarks = tuple(
        f"rank {rank} was ended by {signal.Signals(-code).name} after its script had finished"
        for rank, (code, _) in sorted(scene.exits.items())
        if code < 0
    )
    records = [completed(scene, rank, pipes) for rank in sorted(scene.exits)]
    told = sorted((one for one in records if one), key=lambda one: one.at)
    stops = scene.own_stops
    return Ended(
        is_success=scene.is_success,
        records=() if scene.is_success else tuple(told),
        remarks=remarks if scene.is_success else (),
        signal=stops[0] if stops else scene.ordered,
        now=time.monotonic(),
    )


def completed(scene: Scene, rank: int, pipes: output.Output) -> FailureRecord | None:
    """A rank's record, or one made from its exit; None where it ended well or by our own hand."""
    code, seen = scene.exits[rank]
    is_stopped = -code in scene.stops.told.get(rank, set())
    first = scene.failing.get(rank)
    told = scene.records.get(rank, first if is_stopped else None)
    killed = oom_kills() - scene.oom_kills
    if told is not None:
        return replace(told, oom_kills=killed, log_tail=pipes.tail(rank))
    ended_well = code == 0 or (code < 0 and rank in scene.finished)
    if first is None and (ended_well or is_stopped):
        return None
    return replace(
        first or FailureRecord(rank, seen),
        exit_code=128 - code if code < 0 else code,
        signal=-code if code < 0 else None,
        oom_kills=killed,
        log_tail=pipes.tail(rank),
    )
