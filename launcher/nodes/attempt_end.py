"""The end of an attempt, on one node or on all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..checkpoints.checkpoint import Saves
from ..core.settings import Value
from ..evidence.failure_record import FailureRecord
from ..progress.board import RankProgress
from .messages import Ended


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """The end of an attempt: on this node, or for node 0 on all nodes.

    Attributes:
        ended: how each node's workers ended, by the node's rank.
        lost: nodes that can't be reached any more: when that was noticed, in seconds of this host's
            monotonic clock, and a sentence that names the node and the reason.
        failing: failure records that nodes sent before their workers had ended.
        observed: settings in force and facts, as observed by the workers.
        model: the model as the first worker described it.
        is_superseded: the attempt was stopped because of the workers' observations.
        saves: where this node's Trainers save, the first rank's first (`places`).
        rows: how far this node's ranks had come.
        span: its start and end on this node, in seconds of this host's monotonic clock.
    """

    ended: Mapping[int, Ended]
    lost: Mapping[int, tuple[float, str]] = field(default_factory=lambda: MappingProxyType({}))
    failing: Mapping[int, tuple[FailureRecord, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    observed: Mapping[str, Value] = field(default_factory=lambda: MappingProxyType({}))
    model: dict[str, Any] | None = None
    is_superseded: bool = False
    saves: tuple[Saves, ...] = ()
    rows: tuple[RankProgress, ...] = ()
    span: tuple[float, float] = (0.0, 0.0)
