"""Checkpoints as a training leaves them: where it writes, and what is known of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from ..core.settings import Engine

VARIABLE = "SAFE_LAUNCH_RESUME"
"""Environment variable with what a training goes on from, `NUMBER:FOLDER`; empty for nothing.

The number says which training of the process: 0 for the first call of `Trainer.train`.
"""
STATE = "trainer_state.json"
"""The file that Hugging Face's Trainer writes last into a checkpoint, on rank 0."""
NAME = re.compile(r"(?:checkpoint|universal)-\d{1,18}(?:-\d{1,9})?", re.ASCII)
"""Folders that a training goes on from: the Trainer's, and those of `universal.convert`."""
UNIVERSAL = "latest_universal"
"""File of a folder from which DeepSpeed loads a universal checkpoint; it names the folder in it."""


@dataclass(frozen=True, slots=True)
class Saves:
    """Where a Trainer saves, as its worker told when the training began.

    Attributes:
        output_dir: its folder, absolute.
        number: how many trainings of the process came before.
        before: the checkpoints that were there already, by the folder's name: when their last file
            was written, in nanoseconds of the file system's clock; 0 where they have none.
    """

    output_dir: str
    number: int = 0
    before: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Resume:
    """What a training goes on from, in terms that hold on every node.

    Attributes:
        training: which training of the process it is, 0 for the first.
        name: the folder's, in the one where that training saves (`NAME`).
    """

    training: int
    name: str


@dataclass(frozen=True, slots=True)
class Saved:
    """A complete checkpoint.

    Attributes:
        folder: `checkpoint-N`.
        step: optimizer steps done when it was written.
        engine: who wrote the optimizer's state.
        world: ranks that wrote it.
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
    """A checkpoint that can't be gone on from.

    Attributes:
        folder: `checkpoint-N`.
        step: the N.
        reason: what is wrong with it, in words.
        is_cut_off: its writing ended in the middle, so nobody could ever use it; otherwise it may
            be whole, and only can't be used from here or by us.
    """

    folder: Path
    step: int
    reason: str
    is_cut_off: bool


@dataclass(frozen=True, slots=True)
class Found:
    """The checkpoints of this job, the newest first."""

    complete: tuple[Saved, ...] = ()
    unusable: tuple[Unusable, ...] = ()


def told(training: int, folder: Path) -> str:
    """What workers are told of what a training goes on from (`VARIABLE`)."""
    return f"{training}:{folder}"


def joined(found: Iterable[Found]) -> Found:
    """The checkpoints of several folders together."""
    each = list(found)
    complete = [one for some in each for one in some.complete]
    unusable = [one for some in each for one in some.unusable]
    return Found(
        tuple(sorted(complete, key=lambda one: -one.step)),
        tuple(sorted(unusable, key=lambda one: -one.step)),
    )
