"""A preset with its reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..core.constraint import CauseKind, Constraint
from ..core.hardware import Hardware
from ..core.preset import Preset
from ..core.request import LaunchRequest
from ..core.settings import Setting, Value
from ..core.workload import Workload
from .estimates.estimate import Estimate


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that differs from what was asked.

    Attributes:
        setting: which.
        old: what the script asks for; None where it says nothing.
        source: where that was read.
        new: what the plan uses.
        constraint: what forbids to keep the old value beside the rest of the plan.
    """

    setting: Setting
    old: Value | None
    source: str
    new: Value
    constraint: Constraint


@dataclass(frozen=True, slots=True)
class Considered:
    """An evaluated candidate.

    Attributes:
        preset: its settings.
        constraint: the first that forbids it; None where it may be launched.
        estimate: the memory it needs; None where the model isn't known.
        seconds: the predicted time of a step, to compare candidates by; None where unknown.
        fits_as_expected: whether the memory that it is expected to need is there.
    """

    preset: Preset
    constraint: Constraint | None
    estimate: Estimate | None = None
    seconds: float | None = None
    fits_as_expected: bool = True

    @property
    def bound(self) -> int:
        """Bytes that it is budgeted; 0 where the model isn't known."""
        return 0 if self.estimate is None else self.estimate.bound

    @property
    def is_forbidden_by_memory(self) -> bool:
        """Whether it only doesn't fit."""
        return self.constraint is not None and self.constraint.cause.kind is CauseKind.MEMORY

    @property
    def is_tight(self) -> bool:
        """Whether what is expected fits, and only the bound doesn't."""
        return self.is_forbidden_by_memory and self.fits_as_expected


@dataclass(frozen=True, slots=True)
class Plan:
    """How to launch, and why so.

    Attributes:
        request: what the user asked the launcher for.
        workload: what is known of the training.
        hardware: what it runs on.
        preset: the decision.
        changes: every setting that differs from what the script asks for.
        considered: all evaluated candidates, the preferred first.
        chosen: the one that the preset is.
        proposals: what the user could change at little cost, each with what it saves, in words.
        doubts: what the memory estimate depends on though nothing has stated it, in words, where
            it would have refused the training; then it forbids nothing.
    """

    request: LaunchRequest
    workload: Workload
    hardware: Hardware
    preset: Preset
    changes: tuple[Change, ...]
    considered: tuple[Considered, ...]
    chosen: Considered
    proposals: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def rejected(self) -> tuple[Considered, ...]:
        """The candidates that would have been preferred, if nothing forbade them."""
        return self.considered[: self.considered.index(self.chosen)]

    @property
    def overrides(self) -> Mapping[Setting, Value]:
        """The settings that the workers' guards enforce: those that the plan changes."""
        return {change.setting: change.new for change in self.changes}

    @property
    def replaced(self) -> Mapping[Setting, Value]:
        """What the script itself asks for of the overrides, where that is known."""
        return {change.setting: change.old for change in self.changes if change.old is not None}


@dataclass(frozen=True, slots=True)
class NoPlan:
    """Nothing that can be launched is left.

    Attributes:
        request: what the user asked the launcher for.
        workload: what is known of the training.
        hardware: what it was to run on.
        rejected: every candidate with the constraint that forbids it, best first.
        remedies: what would make it feasible, each with its computed number, in words.
    """

    request: LaunchRequest
    workload: Workload
    hardware: Hardware
    rejected: tuple[Considered, ...]
    remedies: tuple[str, ...] = ()
