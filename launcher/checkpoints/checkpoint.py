"""A training's save folder and checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from ..core.choices import Engine
from ..core.limits import Attempts, pattern

VARIABLE = "SAFE_LAUNCH_RESUME"
"""Environment variable with the checkpoint to resume from, `NUMBER:FOLDER`; empty for none.

NUMBER counts the calls of `Trainer.train` in the process, from 0.
"""
STATE = "trainer_state.json"
"""The last file of a checkpoint, written by the Trainer on rank 0."""
NAME = r"(?:checkpoint|universal)-\d{1,18}(?:-\d{1,9})?"
"""Names of resumable folders: the Trainer's and `universal.convert`'s."""
UNIVERSAL = "latest_universal"
"""File with the name of the universal checkpoint beside it, for DeepSpeed."""


@dataclass(frozen=True, slots=True)
class Saves:
    """A Trainer's save folder, reported as the training began.

    Attributes:
        output_dir: its absolute path.
        number: number of earlier trainings of the process.
        before: modification times of `STATE` in existing checkpoints, by folder name, in
            nanoseconds of the file system's clock; 0 without the file.
    """

    output_dir: str
    number: int = 0
    before: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Resume:
    """The checkpoint to resume from, without paths, so it applies on every node.

    Attributes:
        training: index of the training in the process.
        name: the checkpoint's name (`NAME`) in that training's save folder.
    """

    training: Attempts
    name: Annotated[str, pattern(NAME, "a checkpoint's name")]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint.

    Attributes:
        folder: `checkpoint-N`.
        step: optimizer steps done before saving.
        engine: the engine that wrote the optimizer's state.
        world: the number of ranks that wrote it.
        zero_stage: DeepSpeed's stage when saving.
        is_offloaded: whether the optimizer was DeepSpeed's CPU optimizer.
    """

    folder: Path
    step: int
    engine: Engine
    world: int
    zero_stage: int | None = None
    is_offloaded: bool = False


@dataclass(frozen=True, slots=True)
class Unusable:
    """A checkpoint that the next attempt cannot resume from.

    Attributes:
        folder: `checkpoint-N`.
        step: the N.
        reason: its fault, as a clause.
        is_cut_off: whether it is incomplete and unusable; otherwise it may be complete, and only
            safe-launch can't use it here.
    """

    folder: Path
    step: int
    reason: str
    is_cut_off: bool


AnyCheckpoint = Checkpoint | Unusable


def resume_value(training: int, folder: Path) -> str:
    """The value of `VARIABLE` to resume a training of the process from a folder."""
    return f"{training}:{folder}"


def newest_first(checkpoints: Iterable[AnyCheckpoint]) -> tuple[AnyCheckpoint, ...]:
    """Checkpoints in the order of trial: of one step, complete ones first."""
    return tuple(sorted(checkpoints, key=lambda entry: (-entry.step, isinstance(entry, Unusable))))
