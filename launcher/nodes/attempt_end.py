"""What became of an attempt on one node or on all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..checkpoints.checkpoint import Saves
from ..core.settings import Value
from ..evidence.failure_record import FailureRecord
from .messages import Ended


@dataclass(frozen=True, slots=True)
class AttemptEnd:
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
