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
    """A setting that differs from the request.

    Attributes:
        old: the script's value, if any.
        source: the place of the script's value.
        new: the plan's value.
        constraint: the constraint that forbids the old value with the rest of the plan.
    """

    setting: Setting
    old: Value | None
    source: str
    new: Value
    constraint: Constraint


@dataclass(frozen=True, slots=True)
class Doubt:
    """Changes withheld because memory is uncertain: facts are missing, or a version is unproven.

    Attributes:
        withheld: the estimate's changes; empty if it would have refused the training.
        missing: the unknown facts that matter, in words.
        unproven: library and version not proven to train the same with these changes; empty if
            facts are missing instead.
    """

    withheld: tuple[Change, ...]
    missing: tuple[str, ...]
    unproven: str = ""


@dataclass(frozen=True, slots=True)
class Considered:
    """An evaluated candidate.

    Attributes:
        preset: the candidate's settings.
        constraint: the first constraint that forbids it; None if it may be launched.
        estimate: its memory; None if the model is unknown.
        seconds: predicted step time, for comparisons; None if unknown.
        may_fit: whether its expected memory fits, within the estimate's error.
    """

    preset: Preset
    constraint: Constraint | None
    estimate: Estimate | None = None
    seconds: float | None = None
    may_fit: bool = True

    @property
    def bound(self) -> int:
        """The budgeted bytes; 0 if the model is unknown."""
        return 0 if self.estimate is None else self.estimate.bound

    @property
    def expected(self) -> int:
        """The expected bytes; 0 if the model is unknown."""
        return 0 if self.estimate is None else self.estimate.expected

    @property
    def is_forbidden_by_memory(self) -> bool:
        """Whether only memory forbids the candidate."""
        return self.constraint is not None and self.constraint.cause.kind is CauseKind.MEMORY

    @property
    def is_tight(self) -> bool:
        """Whether the expected memory fits but the bound doesn't."""
        return self.is_forbidden_by_memory and self.may_fit


@dataclass(frozen=True, slots=True)
class Plan:
    """A launch with its reasons.

    Attributes:
        preset: the decision.
        changes: all settings that differ from the script's.
        considered: all evaluated candidates, the preferred first.
        chosen: the candidate of the preset.
        proposals: cheap changes for the user, each with its saving, in words.
        doubt: the memory estimate's change, if it depends on assumptions.
    """

    request: LaunchRequest
    workload: Workload
    hardware: Hardware
    preset: Preset
    changes: tuple[Change, ...]
    considered: tuple[Considered, ...]
    chosen: Considered
    proposals: tuple[str, ...] = ()
    doubt: Doubt | None = None

    @property
    def rejected(self) -> tuple[Considered, ...]:
        """The preferred but forbidden candidates."""
        return self.considered[: self.considered.index(self.chosen)]

    @property
    def changed_for_memory(self) -> tuple[Change, ...]:
        """The changes made only for memory."""
        return tuple(
            change for change in self.changes if change.constraint.cause.kind is CauseKind.MEMORY
        )

    @property
    def overrides(self) -> Mapping[Setting, Value]:
        """The settings changed by the plan, which workers' guards enforce."""
        return {change.setting: change.new for change in self.changes}

    @property
    def replaced(self) -> Mapping[Setting, Value]:
        """The script's own values of the overrides, if known."""
        return {change.setting: change.old for change in self.changes if change.old is not None}


@dataclass(frozen=True, slots=True)
class NoPlan:
    """No candidate can be launched.

    Attributes:
        rejected: all candidates with their constraints, best first.
        remedies: changes that make a launch feasible, each with its computed number, as phrases.
        barred: the plan prevented by a setting in `--never-change`.
    """

    request: LaunchRequest
    workload: Workload
    hardware: Hardware
    rejected: tuple[Considered, ...]
    remedies: tuple[str, ...] = ()
    barred: Preset | None = None

    @property
    def is_for_memory(self) -> bool:
        """Whether memory forbids any candidate."""
        return any(candidate.is_forbidden_by_memory for candidate in self.rejected)
