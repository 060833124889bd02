"""Finds checkpoints written by Hugging Face's Trainer in this job.

Trainer 4.57 and 5.x write a checkpoint in this order (`_save_checkpoint` in
transformers/trainer.py): the weights on rank 0; the optimizer's and scheduler's state, under
DeepSpeed every rank its part, then `latest` on rank 0; each rank its `rng_state_R.pth`; on rank 0
`trainer_state.json`, and only then are older ones deleted. No barrier follows, so another rank's
file may come after rank 0's last one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from ..core.errors import reason_of
from .checkpoint import STATE, AnyCheckpoint, Resume, Saves, Unusable, newest_first
from .contents import CutOffError, ForeignError, read

FOLDER = re.compile(r"checkpoint-(\d+)")


def present(output_dir: str) -> dict[str, int]:
    """Modification times of `STATE` in a folder's checkpoints, by name (`Saves`)."""
    try:
        folders = [path for path in Path(output_dir).iterdir() if FOLDER.fullmatch(path.name)]
    except OSError:
        return {}
    times = dict.fromkeys((folder.name for folder in folders), 0)
    for folder in folders:
        with suppress(OSError):
            times[folder.name] = (folder / STATE).stat().st_mtime_ns
    return times


def local_folder(resume: Resume, saves: Sequence[Saves]) -> Path | None:
    """This node's folder of a checkpoint; None if no worker reported it.

    Some scripts save to a new folder at every launch: the latest with the checkpoint counts. If
    none has it, e.g. on nodes without a shared disk, the training itself will fail.
    """
    folders = [
        Path(place.output_dir) / resume.name for place in saves if place.number == resume.training
    ]
    existing = [folder for folder in folders if folder.is_dir()]
    return next(reversed(existing or folders), None)


def find_all(
    saves: Saves, worlds: Collection[int], local: int | None = None
) -> tuple[AnyCheckpoint, ...]:
    """Checkpoints written since the training began, newest first.

    Args:
        saves: the training's save folder and earlier checkpoints.
        worlds: numbers of ranks in this job's attempts.
        local: number of this node's ranks, if there are other nodes, whose ranks' files may be on
            their own disks. None for a single node.
    """
    output_dir = Path(saves.output_dir)
    checkpoints: list[AnyCheckpoint] = []
    for name, written in present(saves.output_dir).items():
        if saves.before.get(name) == written:
            continue
        folder, step = output_dir / name, int(name.rpartition("-")[2])
        try:
            checkpoints.append(read(folder, step, worlds, local))
        except (CutOffError, ForeignError) as problem:
            is_cut_off = isinstance(problem, CutOffError)
            checkpoints.append(Unusable(folder, step, str(problem), is_cut_off))
        except OSError as error:
            reason = f"it can't be read: {reason_of(error)}"
            checkpoints.append(Unusable(folder, step, reason, is_cut_off=False))
    return newest_first(checkpoints)
