"""Decides where the next attempt begins, so no progress is lost, and when to give up.

Loadable checkpoints were measured with DeepSpeed 0.16.9 and 0.19.8 (docs/measured/resuming.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..core.choices import Engine
from ..core.errors import Refused
from ..core.quantities import count_of
from .checkpoint import AnyCheckpoint, Checkpoint, Resume, Unusable, newest_first, resume_value

PATIENCE = 3
"""Attempts in a row without a new step after which a job with steps ends."""
ALLOW = "--allow-restart"
WRITERS = {
    Engine.DDP: "a Trainer without DeepSpeed",
    Engine.DEEPSPEED: "DeepSpeed",
    Engine.FSDP: "FSDP",
}


class Loading(StrEnum):
    """The way to load a checkpoint."""

    AS_IT_IS = "as it is"
    UNIVERSAL = "universal"
    """As a universal checkpoint, after conversion by `launcher/checkpoints/universal.py`."""


@dataclass(frozen=True, slots=True)
class Target:
    """The part of a plan that determines its loadable checkpoints.

    Attributes:
        engine: the engine with the optimizer's state; None if unknown.
        zero_stage: DeepSpeed's stage; None for the script's.
        world: the number of ranks on all nodes.
        is_offloaded: whether the optimizer is in host memory; None for the script's choice.
    """

    engine: Engine | None
    zero_stage: int | None
    world: int
    is_offloaded: bool | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Where the next attempt begins.

    Attributes:
        checkpoint: the checkpoint to resume from; None for the script's start.
        loading: the way to load the checkpoint.
        aside: later checkpoints of this job to move out of the way.
        sentence: the reason; empty before the first step.
        training: index of the resuming training in the process.
    """

    checkpoint: Checkpoint | None
    loading: Loading = Loading.AS_IT_IS
    aside: tuple[AnyCheckpoint, ...] = ()
    sentence: str = ""
    training: int = 0

    @property
    def resume(self) -> Resume | None:
        """The checkpoint, as sent to other nodes."""
        if self.checkpoint is None:
            return None
        return Resume(self.training, self.checkpoint.folder.name)

    @property
    def variable(self) -> str:
        """The value of `checkpoint.VARIABLE` for the workers."""
        if self.checkpoint is None:
            return ""
        return resume_value(self.training, self.checkpoint.folder)


def loading(checkpoint: Checkpoint, target: Target) -> Loading | Refused:
    """The way to load a checkpoint with the optimizer's state."""
    if target.engine not in (None, checkpoint.engine):
        writer = WRITERS[checkpoint.engine]
        return Refused(
            f"{writer} wrote it, and the optimizer's state is now kept by another engine"
        )
    if checkpoint.engine is not Engine.DEEPSPEED:  # FSDP shards what it loads anew
        return Loading.AS_IT_IS
    old = checkpoint.zero_stage
    new = old if target.zero_stage is None else target.zero_stage
    if new == old == 0:
        return Loading.AS_IT_IS
    if not old or not new or (new == 3 and old != 3):
        return Refused(f"the optimizer's state of ZeRO stage {old} can't be loaded at stage {new}")
    # At stages 1 and 2, optimizers with and without offload can't load each other's groups. With
    # offload, 0.16.9 silently resumes wrongly even from its own checkpoints.
    is_kept = new == 3 or not (checkpoint.is_offloaded or target.is_offloaded)
    if checkpoint.world == target.world and (old == 3) == (new == 3) and is_kept:
        return Loading.AS_IT_IS
    if new == 3:
        ranks = f"{count_of(checkpoint.world, 'rank')} can't be loaded by {target.world}"
        return Refused(f"the optimizer's state of ZeRO stage 3 on {ranks}")
    return Loading.UNIVERSAL


def next_start(
    checkpoints: Sequence[AnyCheckpoint], steps: int | None, target: Target, *, may_restart: bool
) -> Start | Refused:
    """Where the next attempt begins.

    Args:
        checkpoints: the checkpoints of this job, newest first.
        steps: optimizer steps done by the job; None if unknown.
        target: the target of the next attempt.
        may_restart: whether the user accepts the loss of saved progress.
    """
    passed_over: dict[str, str] = {}
    for checkpoint in checkpoints:
        if isinstance(checkpoint, Unusable):
            if not checkpoint.is_cut_off:
                passed_over.setdefault(checkpoint.folder.name, checkpoint.reason)
            continue
        way = loading(checkpoint, target)
        if isinstance(way, Refused):
            passed_over.setdefault(checkpoint.folder.name, way.sentence)
        elif may_restart or not passed_over:
            aside = tuple(later for later in checkpoints if later.step > checkpoint.step)
            return Start(checkpoint, way, aside, _resumed(checkpoint, way, aside, steps))
    done = "an unknown number of steps" if steps is None else count_of(steps, "step")
    if passed_over and not may_restart:
        name, reason = next(iter(passed_over.items()))
        return Refused(
            f"cannot resume from {name}: {reason}. The training would restart from scratch, after "
            f"{done}; {ALLOW} allows that, and keeps the checkpoints"
        )
    if steps == 0 and not checkpoints:
        return Start(None)
    sentence = f"from the start, after {done}: {_nothing_usable(checkpoints, passed_over)}"
    return Start(None, aside=tuple(checkpoints), sentence=sentence)


def _nothing_usable(checkpoints: Iterable[AnyCheckpoint], passed_over: dict[str, str]) -> str:
    """The reason to start from scratch although the job has made steps."""
    if passed_over:
        return "cannot resume from the checkpoints of this job"
    for entry in checkpoints:
        if isinstance(entry, Unusable) and entry.is_cut_off:
            return f"this job's only checkpoint, {entry.folder.name}, is cut off ({entry.reason})"
    return "this job has no checkpoint"


def _resumed(
    checkpoint: Checkpoint, way: Loading, aside: Sequence[AnyCheckpoint], steps: int | None
) -> str:
    lost = ""
    if steps is not None and steps > checkpoint.step:
        lost = f" ({count_of(steps, 'step')} had been done)"
    sentence = f"resumes from {checkpoint.folder.name}{lost}"
    if way is Loading.UNIVERSAL:
        what = "ZeRO stage" if checkpoint.zero_stage == 3 else "number of ranks or offload"
        sentence += f", as a universal checkpoint, because its optimizer state is of another {what}"
    for later in aside:
        if isinstance(later, Unusable):
            sentence += f"; {later.folder.name} is skipped: {later.reason}"
    return sentence


def without(
    checkpoints: Iterable[AnyCheckpoint], spoilt: Checkpoint, reason: str
) -> tuple[AnyCheckpoint, ...]:
    """The checkpoints, of which one turned out to be unusable."""
    unusable = Unusable(spoilt.folder, spoilt.step, reason, is_cut_off=False)
    return newest_first(unusable if entry == spoilt else entry for entry in checkpoints)


def is_stuck(steps: Sequence[int | None]) -> bool:
    """Whether the last attempts made no new step.

    Attempts before the job's first step belong to the search for settings, which has its own limit.
    An unknown number of steps isn't zero.

    Args:
        steps: the highest known step of each attempt; None if unknown.
    """
    latest = [step for step in steps[-PATIENCE:] if step is not None]
    if len(steps) <= PATIENCE or len(latest) < PATIENCE:
        return False
    best = max((step for step in steps[:-PATIENCE] if step is not None), default=0)
    return best > 0 and max(latest) <= best
