"""A preset with its reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .constraint import Constraint
from .machine import Hardware
from .preset import Preset
from .request import LaunchRequest
from .settings import Setting, Value
from .workload import Workload


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that differs from what was asked.

    Attributes:
        setting: which.
        old: what was asked for.
        source: where that was read.
        new: what the plan uses.
        constraint: what forbids to keep the old value beside the rest of the plan.
    """

    setting: Setting
    old: Value
    source: str
    new: Value
    constraint: Constraint


@dataclass(frozen=True, slots=True)
class Rejection:
    """A candidate that would have been preferred, and the first constraint that forbids it."""

    preset: Preset
    constraint: Constraint


@dataclass(frozen=True, slots=True)
class Plan:
    """How to launch, and why so.

    Attributes:
        request: what the user asked the launcher for.
        workload: what is known of the training.
        hardware: what it runs on.
        preset: the decision.
        changes: every setting that differs from what was asked.
        rejected: the candidates ranked before the chosen one, best first.
    """

    request: LaunchRequest
    workload: Workload
    hardware: Hardware
    preset: Preset
    changes: tuple[Change, ...]
    rejected: tuple[Rejection, ...]

    @property
    def overrides(self) -> Mapping[Setting, Value]:
        """The settings that the workers' guards enforce: those that the plan changes."""
        return {change.setting: change.new for change in self.changes}


@dataclass(frozen=True, slots=True)
class NoPlan:
    """Nothing that can be launched is left.

    Attributes:
        workload: what is known of the training.
        rejected: every candidate with the constraint that forbids it, best first.
    """

    workload: Workload
    rejected: tuple[Rejection, ...]
