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
    """A setting that differs from what was asked for.

    Attributes:
        setting: the setting.
        old: the script's value; None if it sets none.
        source: the place of that value.
        new: the plan's value.
        constraint: what forbids the old value with the rest of the plan.
    """

    setting: Setting
    old: Value | None
    source: str
    new: Value
    constraint: Constraint


@dataclass(frozen=True, slots=True)
class Doubt:
    """Changes withheld for want of certainty about memory: missing facts, or an unproven version.

    Attributes:
        withheld: the changes that the estimate alone would have made; none if it would have
            refused the training.
        missing: the facts that it depends on, in words.
        unproven: the library with its version that isn't shown to train the same
            with these changes; empty if facts are missing instead.
    """

    withheld: tuple[Change, ...]
    missing: tuple[str, ...]
    unproven: str = ""


@dataclass(frozen=True, slots=True)
class Considered:
    """An evaluated candidate.

    Attributes:
        preset: its settings.
        constraint: the first that forbids it; None if it may be launched.
        estimate: the memory it needs; None if the model isn't known.
        seconds: the predicted time of a step, to compare candidates by; None if unknown.
        may_fit: whether what is expected of its memory fits, within the error of the estimate.
    """

    preset: Preset
    constraint: Constraint | None
    estimate: Estimate | None = None
    seconds: float | None = None
    may_fit: bool = True

    @property
    def bound(self) -> int:
        """The budgeted bytes; 0 if the model isn't known."""
        return 0 if self.estimate is None else self.estimate.bound

    @property
    def expected(self) -> int:
        """Bytes that it is expected to need; 0 if the model isn't known."""
        return 0 if self.estimate is None else self.estimate.expected

    @property
    def is_forbidden_by_memory(self) -> bool:
        """Whether only memory forbids it."""
        return self.constraint is not None and self.constraint.cause.kind is CauseKind.MEMORY

    @property
    def is_tight(self) -> bool:
        """Whether it may fit, and only the bound doesn't."""
        return self.is_forbidden_by_memory and self.may_fit


@dataclass(frozen=True, slots=True)
class Plan:
    """How to launch, with the reasons.

    Attributes:
        request: the user's command line.
        workload: the known facts of the training.
        hardware: the hardware of every node.
        preset: the decision.
        changes: every setting that differs from what the script asks for.
        considered: all evaluated candidates, the preferred first.
        chosen: the one that the preset is.
        proposals: changes at little cost for the user, each with its saving, in words.
        doubt: the change that the memory estimate would have made, if it depends on assumptions.
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
        """The more preferred candidates, which are forbidden."""
        return self.considered[: self.considered.index(self.chosen)]

    @property
    def overrides(self) -> Mapping[Setting, Value]:
        """The settings that the workers' guards enforce: those that the plan changes."""
        return {change.setting: change.new for change in self.changes}

    @property
    def replaced(self) -> Mapping[Setting, Value]:
        """The script's own values of the overrides, if known."""
        return {change.setting: change.old for change in self.changes if change.old is not None}


@dataclass(frozen=True, slots=True)
class NoPlan:
    """No candidate can be launched.

    Attributes:
        request: the user's command line.
        workload: the known facts of the training.
        hardware: the hardware of every node.
        rejected: every candidate with the constraint that forbids it, best first.
        remedies: changes that would make it feasible, each with its computed number, as phrases.
        barred: the plan that a setting which is never changed prevents.
    """

    request: LaunchRequest
    workload: Workload
    hardware: Hardware
    rejected: tuple[Considered, ...]
    remedies: tuple[str, ...] = ()
    barred: Preset | None = None
