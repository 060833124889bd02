"""One launch of all workers, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .plan import Plan
from .record import FailureRecord
from .settings import Value


@dataclass(frozen=True, slots=True)
class Attempt:
    """One launch of all workers with one plan.

    Attributes:
        number: 0 for the first.
        plan: what it runs with.
        folder: where its plan, records and logs are kept.
    """

    number: int
    plan: Plan
    folder: Path


@dataclass(frozen=True, slots=True)
class Seen:
    """What the workers of an attempt have reported before the first step.

    Attributes:
        observed: settings in force and facts, by name.
        model: the model's configuration and kinds of weights, as a worker describes them
            (`launcher/guards/sightings.py`, `shape_of`); None while no worker has seen one.
    """

    observed: Mapping[str, Value]
    model: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Succeeded:
    """All workers ran the script to its end; `remarks` says what happened after the end."""

    attempt: Attempt
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """At least one worker died; `records` has one for each that died by itself, earliest first."""

    attempt: Attempt
    records: tuple[FailureRecord, ...]
    seen: Seen = Seen({})


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The launcher was told to stop by `signal`."""

    attempt: Attempt
    signal: int


@dataclass(frozen=True, slots=True)
class Superseded:
    """A worker reported, before any failure, something that the plan is forbidden to run with."""

    attempt: Attempt
    seen: Seen


Outcome = Succeeded | Failed | Interrupted | Superseded
