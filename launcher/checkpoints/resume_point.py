"""Where the next attempt begins, so that no progress is thrown away; and when trying is enough.

What loads what was measured with DeepSpeed 0.16.9 and 0.19.8 (docs/measured/resuming.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..core.refused import Refused
from ..core.settings import Engine
from .checkpoint import Found, Resume, Saved, Unusable, told

PATIENCE = 3
"""Attempts in a row without a new step after which a job that has made steps is given up."""
ALLOW = "--allow-restart"


class Loading(StrEnum):
    """How a checkpoint is loaded."""

    AS_IT_IS = "as it is"
    UNIVERSAL = "universal"
    """After `launcher/checkpoints/universal.py` has made a universal checkpoint of it."""


@dataclass(frozen=True, slots=True)
class Target:
    """What of a plan decides which checkpoints it can load.

    Attributes:
        engine: who keeps the optimizer's state; None where unknown.
        zero_stage: DeepSpeed's; None for the script's own, unchanged.
        world: ranks of all nodes.
        is_offloaded: the optimizer is kept in host memory; None for the script's own, unchanged.
    """

    engine: Engine | None
    zero_stage: int | None
    world: int
    is_offloaded: bool | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """The next attempt may begin.

    Attributes:
        saved: what it goes on from; None for the beginning, as the script itself decides.
        loading: how that is loaded.
        aside: checkpoints of this job that come after it, to be moved out of the training's way.
        sentence: why so, in words; empty where nothing has been done yet.
        training: which training of the process goes on, 0 for the first.
    """

    saved: Saved | None
    loading: Loading = Loading.AS_IT_IS
    aside: tuple[Saved | Unusable, ...] = ()
    sentence: str = ""
    training: int = 0

    @property
    def resume(self) -> Resume | None:
        """What the other nodes are told of what it goes on from."""
        return None if self.saved is None else Resume(self.training, self.saved.folder.name)

    @property
    def variable(self) -> str:
        """What the workers are told (`saved.VARIABLE`)."""
        return "" if self.saved is None else told(self.training, self.saved.folder)


def loading(saved: Saved, target: Target) -> Loading | str:
    """How a checkpoint can be loaded with the optimizer's state; otherwise why not, in words."""
    if target.engine not in (None, saved.engine):
        return f"{_writer(saved)} wrote it, and the optimizer's state is kept otherwise now"
    if saved.engine is Engine.DDP:
        return Loading.AS_IT_IS
    old = saved.zero_stage
    new = old if target.zero_stage is None else target.zero_stage
    if new == old == 0:
        return Loading.AS_IT_IS
    if not old or not new or (new == 3 and old != 3):
        return f"the optimizer's state of ZeRO stage {old} can't be loaded at stage {new}"
    # At stages 1 and 2 the optimizers with and without offload don't load each other's groups, and
    # 0.16.9 goes on wrongly, without an error, from what it has saved with offload itself.
    is_kept = new == 3 or not (saved.is_offloaded or target.is_offloaded)
    if saved.world == target.world and (old == 3) == (new == 3) and is_kept:
        return Loading.AS_IT_IS
    if new == 3:
        ranks = f"{saved.world} ranks can't be loaded by {target.world}"
        return f"the optimizer's state of ZeRO stage 3 on {ranks}"
    return Loading.UNIVERSAL


def _writer(saved: Saved) -> str:
    return "DeepSpeed" if saved.engine is Engine.DEEPSPEED else "a Trainer without DeepSpeed"


def next_start(
    found: Found, steps: int | None, target: Target, is_allowed: bool
) -> Start | Refused:
    """Where the next attempt begins.

    Args:
        found: the checkpoints of this job.
        steps: optimizer steps that it has done, as far as it is known.
        target: what the next attempt runs with.
        is_allowed: whether the user allows what has been saved to be of no use.
    """
    everything: list[Saved | Unusable] = [*found.complete, *found.unusable]
    everything.sort(key=lambda one: -one.step)
    done = "an unknown number of steps" if steps is None else f"{steps} steps"
    reasons: dict[str, str] = {}
    for one in everything:
        way = one.reason if isinstance(one, Unusable) else loading(one, target)
        if isinstance(one, Saved) and isinstance(way, Loading) and (is_allowed or not reasons):
            aside = tuple(later for later in everything if later.step > one.step)
            return Start(one, way, aside, _going_on(one, way, aside, steps))
        if isinstance(one, Saved) or not one.is_cut_off:
            reasons.setdefault(one.folder.name, str(way))
    if reasons and not is_allowed:
        name, reason = next(iter(reasons.items()))
        return Refused(
            f"{name} can't be gone on from: {reason}. The training would start anew, after {done}; "
            f"{ALLOW} allows that, and keeps the checkpoints"
        )
    if steps == 0 and not everything:
        return Start(None)
    cut = [one for one in found.unusable if one.is_cut_off]
    none = "this job has no checkpoint"
    if reasons:
        none = "the checkpoints of this job can't be gone on from"
    elif cut:
        none = f"this job's only checkpoint, {cut[0].folder.name}, is cut off ({cut[0].reason})"
    return Start(None, aside=tuple(everything), sentence=f"from the start, after {done}: {none}")


def _going_on(
    saved: Saved, way: Loading, aside: Sequence[Saved | Unusable], steps: int | None
) -> str:
    lost = "" if steps is None or steps <= saved.step else f" ({steps} steps had been done)"
    sentence = f"goes on from {saved.folder.name}{lost}"
    if way is Loading.UNIVERSAL:
        sentence += ", as a universal checkpoint, for its optimizer's state is of another "
        sentence += "ZeRO stage" if saved.zero_stage == 3 else "number of ranks or offload"
    for one in aside:
        if isinstance(one, Unusable):
            sentence += f"; {one.folder.name} isn't taken: {one.reason}"
    return sentence


def unusable(found: Found, saved: Saved, reason: str) -> Found:
    """The checkpoints, when it has turned out that one of them can't be loaded after all."""
    complete = tuple(one for one in found.complete if one != saved)
    spoilt = Unusable(saved.folder, saved.step, reason, is_cut_off=False)
    return Found(complete, (spoilt, *found.unusable))


def is_stuck(steps: Sequence[int | None]) -> bool:
    """Whether the last attempts have brought the job no further.

    Attempts that fail before the job's first step are the search for settings that work, which has
    a bound of its own; and what nobody knows isn't zero.

    Args:
        steps: the highest step that each attempt is known to have reached; None where unknown.
    """
    if len(steps) <= PATIENCE or None in steps[-PATIENCE:]:
        return False
    best = max((one for one in steps[:-PATIENCE] if one is not None), default=0)
    return best > 0 and all(one is not None and one <= best for one in steps[-PATIENCE:])
