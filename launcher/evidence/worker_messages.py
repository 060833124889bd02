"""The messages from a worker to its launcher; each is sent as a line of JSON.

Plain dataclasses and plain json: a worker imports nothing that the user's environment may have in
another version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..checkpoints.checkpoint import Saves
from ..core.plain_json import plain
from ..core.settings import Value
from .failure_record import FailureRecord


@dataclass(frozen=True, slots=True)
class FailureBegun:
    """The worker is failing; the record has what is known at once."""

    record: FailureRecord


@dataclass(frozen=True, slots=True)
class Failure:
    """The complete record of a failure."""

    record: FailureRecord


@dataclass(frozen=True, slots=True)
class Finished:
    """The script has run to its end."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Settings and facts observed in the worker, by name, and the optimizer steps done by then."""

    observed: Mapping[str, Value]
    step: int | None = None


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The model's shape (`observations.shape_of`)."""

    shape: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Exiting:
    """After `Finished`: no thread of Python's is left that the interpreter waits for."""


@dataclass(frozen=True, slots=True)
class Imports:
    """What the worker has imported so far (`extra_imports.Report`)."""

    report: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SaveLocation:
    """Where a Trainer saves."""

    saves: Saves


@dataclass(frozen=True, slots=True)
class Reexecution:
    """The worker is re-executed: its script sets a variable that a preloaded import has read."""

    variable: str


@dataclass(frozen=True, slots=True)
class Remark:
    """What the user should know, in a sentence: what a package lacks, what trains nothing."""

    sentence: str


Message = (
    FailureBegun
    | Failure
    | Finished
    | Exiting
    | Observed
    | ModelShape
    | Imports
    | SaveLocation
    | Reexecution
    | Remark
)


def encoded(rank: int, message: Message) -> bytes:
    """A worker's message as a line of JSON."""
    content = {field.name: getattr(message, field.name) for field in fields(message)}
    line = {"rank": rank, "kind": type(message).__name__, "message": content}
    return json.dumps(line, default=plain).encode() + b"\n"
