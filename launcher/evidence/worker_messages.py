"""Messages between a worker and its launcher, each a line of JSON.

Uses only dataclasses and json: a worker imports nothing that the user's environment may have in
another version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Annotated, Any

from ..checkpoints.checkpoint import Saves
from ..checks.between_ranks import Compared
from ..checks.finding import Check, Finding
from ..checks.resumed import Noted
from ..core.choices import Framework
from ..core.limits import Count, Limit, Line, SettingNames, Settings, Shape, Word
from ..core.plain_json import plain
from ..core.settings import Value
from .failure_record import FailureRecord

ASKED_ALONE = "SAFE_LAUNCH_ASKED_ALONE"
"""Environment variable of a process that only answers a query and trains nothing."""


class EndOfQueryError(BaseException):
    """The process can't continue without weights; a script's handlers must not catch this."""


@dataclass(frozen=True, slots=True)
class FailureBegun:
    """The worker is failing; the record has the immediate facts."""

    record: FailureRecord


@dataclass(frozen=True, slots=True)
class Failure:
    """The complete record of a failure."""

    record: FailureRecord


@dataclass(frozen=True, slots=True)
class Finished:
    """The script has completed."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Settings and facts observed in the worker, by name, and optimizer steps so far."""

    observed: Mapping[str, Value]
    step: int | None = None


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The model's shape (`core/model.py`, `shape_of`)."""

    shape: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Exiting:
    """After `Finished`: no Python thread is left that the interpreter waits for."""


@dataclass(frozen=True, slots=True)
class Finalizing:
    """After `Exiting`: exit handlers have run, and the interpreter shuts down."""


@dataclass(frozen=True, slots=True)
class Imports:
    """The worker's imports so far (`extra_imports.Report`)."""

    report: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SaveLocation:
    """A Trainer's save location."""

    saves: Saves


@dataclass(frozen=True, slots=True)
class Reexecution:
    """The worker re-executes: its script sets a variable that a preloaded import has read."""

    variable: str


@dataclass(frozen=True, slots=True)
class Remark:
    """A sentence for the user, e.g. that a package is missing or a part isn't trained."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Found:
    """A check's finding in this worker."""

    finding: Finding


@dataclass(frozen=True, slots=True)
class Skipped:
    """A check skipped in this worker or a part of its training."""

    check: Check
    why: str


class Boundary(StrEnum):
    """Places where a worker asks, in the order of a training.

    Only a process that trains nothing (`ASKED_ALONE`) asks at `PREPARE` and `STEP`.
    """

    TRAINING_ARGUMENTS = "TrainingArguments"
    ACCELERATOR = "Accelerator"
    PARTITION = "deepspeed.zero.Init"
    FROM_PRETRAINED = "from_pretrained"
    FROM_CONFIG = "from_config"
    TRAINER = "Trainer"
    PREPARE = "Accelerator.prepare"
    INITIALIZE = "deepspeed.initialize"
    DATA_PARALLEL = "DistributedDataParallel"
    CHECKPOINT = "torch.utils.checkpoint"
    STEP = "the first step"


Owner = Annotated[str, Limit("a framework", lambda name: name in {"", *Framework})]


@dataclass(frozen=True, slots=True)
class Ask:
    """A worker's question at a boundary: its facts, for the settings there.

    Attributes:
        key: identifies this pass of the boundary, equal on ranks with the same call path.
        changeable: names of settings that can still change.
        facts: settings in force and facts, by name, including those that are off.
        framework: the owner of the training loop; empty if the boundary doesn't determine it.
        shape: the model's shape, as in `ModelShape`, if any. Before the model's creation, all of
            it counts as trained.
        frame: the user's innermost call, as `file:line`; empty if none.
        step: optimizer steps of an earlier training of the script; None or 0 before the first.
    """

    key: Word
    boundary: Boundary
    changeable: SettingNames
    facts: Settings
    framework: Owner = ""
    shape: Shape | None = None
    frame: Line = ""
    step: Count | None = None


@dataclass(frozen=True, slots=True)
class WentOn:
    """The answer timed out: the worker continues unchanged, and asks no more."""

    key: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The launcher's answer to `Ask`; without overrides the worker continues unchanged.

    Attributes:
        key: the question's.
        overrides: settings to apply.
        replaced: the replaced values, if known.
        probes: whether the launcher needs more facts: at a checkpointed block, whether it runs
            twice; before a model's creation, its shape.
    """

    key: Word
    overrides: Settings = field(default_factory=dict)
    replaced: Settings = field(default_factory=dict)
    probes: bool = False


Message = (
    FailureBegun
    | Failure
    | Finished
    | Exiting
    | Finalizing
    | Observed
    | ModelShape
    | Imports
    | SaveLocation
    | Reexecution
    | Remark
    | Compared
    | Found
    | Skipped
    | Noted
    | Ask
    | WentOn
)


def encoded(rank: int, message: Message) -> bytes:
    """A worker's message as a line of JSON."""
    line = {"rank": rank, "kind": type(message).__name__, "message": _content(message)}
    return json.dumps(line, default=plain).encode() + b"\n"


def encoded_answer(answer: Answer) -> bytes:
    """The launcher's answer as a line of JSON."""
    return json.dumps(_content(answer), default=plain).encode() + b"\n"


def _content(message: Message | Answer) -> dict[str, Any]:
    return {field.name: getattr(message, field.name) for field in fields(message)}
