"""A training's checkpoints: where it saves, and what is known of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from ..core.choices import Engine
from ..core.limits import Attempts, pattern

VARIABLE = "SAFE_LAUNCH_RESUME"
"""Environment variable with what a training resumes from, `NUMBER:FOLDER`; empty for nothing.

NUMBER counts the calls of `Trainer.train` in the process, from 0.
"""
STATE = "trainer_state.json"
"""The file that Hugging Face's Trainer writes last into a checkpoint, on rank 0."""
NAME = r"(?:checkpoint|universal)-\d{1,18}(?:-\d{1,9})?"
"""Names of folders that a training resumes from: the Trainer's and `universal.convert`'s."""
UNIVERSAL = "latest_universal"
"""File from which DeepSpeed loads a universal checkpoint; it names a folder beside it."""


@dataclass(frozen=True, slots=True)
class Saves:
    """Where a Trainer saves, as its worker reported when the training began.

    Attributes:
        output_dir: its folder, absolute.
        number: how many trainings of the process came before.
        before: checkpoints that already existed then, by folder name: when their `STATE` was
            written, in nanoseconds of the file system's clock; 0 if they have none.
    """

    output_dir: str
    number: int = 0
    before: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Resume:
    """The checkpoint to resume from, without paths, so that it applies on every node.

    Attributes:
        training: which training of the process it is, 0 for the first.
        name: the checkpoint's name (`NAME`) in the folder where that training saves.
    """

    training: Attempts
    name: Annotated[str, pattern(NAME, "a checkpoint's name")]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint.

    Attributes:
        folder: `checkpoint-N`.
        step: optimizer steps done when it was written.
        engine: which engine wrote the optimizer's state.
        world: the number of ranks that wrote it.
        zero_stage: the stage that DeepSpeed wrote it at.
        is_offloaded: the optimizer was DeepSpeed's own for the CPU.
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
        reason: what is wrong with it, as a clause.
        is_cut_off: it was only partly written, so nothing can use it; otherwise it may be complete,
            and only safe-launch cannot use it here.
    """

    folder: Path
    step: int
    reason: str
    is_cut_off: bool


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of this job, the newest first."""

    complete: tuple[Checkpoint, ...] = ()
    unusable: tuple[Unusable, ...] = ()


def resume_value(training: int, folder: Path) -> str:
    """The value of `VARIABLE` that makes a training of the process resume from a folder."""
    return f"{training}:{folder}"


def newest_first(complete: Iterable[Checkpoint], unusable: Iterable[Unusable]) -> Checkpoints:
    """Checkpoints in the order in which they are tried."""
    return Checkpoints(
        tuple(sorted(complete, key=lambda checkpoint: -checkpoint.step)),
        tuple(sorted(unusable, key=lambda checkpoint: -checkpoint.step)),
    )
