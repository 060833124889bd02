"""A job's save folders: their checkpoints, ranks that save to different ones, what must go aside.

Trainer 4.57 and 5.x write a checkpoint in this order (`_save_checkpoint` in
transformers/trainer.py): the weights on rank 0; the optimizer's and scheduler's state, under
DeepSpeed every rank its part, then `latest` on rank 0; each rank its `rng_state_R.pth`; on rank 0
`trainer_state.json`, and only then are older ones deleted. No barrier follows, so another rank's
file may come after rank 0's last one.

A script that names its folder by time or a random number creates another one on each rank. Rank 0
then has a checkpoint's weights, and each rank's part is in a separate folder.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from ..core.errors import reason_of
from .checkpoint import (
    STATE,
    AnyCheckpoint,
    Resume,
    Saves,
    Unusable,
    newest_first,
)
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


def places(saves: Mapping[int, Saves]) -> tuple[Saves, ...]:
    """The save folders of a node's ranks: the first rank's, and differing ones."""
    reported = [saves[rank] for rank in sorted(saves)]
    folders: dict[str, Saves] = {}
    for place in reported:
        if place.number == reported[0].number:
            folders.setdefault(place.output_dir, place)
    return tuple(folders.values())


def warning(saves: Mapping[int, Saves], ranks: Collection[int]) -> str | None:
    """A warning about ranks that save to different folders, if any."""
    if len(saves) < len(ranks) or len({place.number for place in saves.values()}) > 1:
        return None
    first, *others = places(saves)
    if not others:
        return None
    rank = next(rank for rank, place in sorted(saves.items()) if place == others[0])
    return (
        f"the ranks save to different folders: rank {min(ranks)} to {first.output_dir}, rank "
        f"{rank} to {others[0].output_dir}. No folder will hold a whole checkpoint. A name made "
        "from the time or a random number differs between ranks: pass the folder on the command "
        "line, or make its name on rank 0 and broadcast it"
    )


def gather(places: Sequence[Saves]) -> None:
    """Completes the first place's checkpoints with other ranks' files.

    Moves and replaces nothing: missing files become links to the other folder's, or copies from
    another disk. Unreadable or unwritable files stay missing.
    """
    first, *others = places
    for other in others:
        for name, written in present(other.output_dir).items():
            is_new = other.before.get(name) != written
            if is_new and (Path(first.output_dir) / name).is_dir():
                _complete(Path(first.output_dir) / name, Path(other.output_dir) / name)


def _complete(whole: Path, part: Path) -> None:
    for source in part.rglob("*"):
        target = whole / source.relative_to(part)
        if source.is_file() and not target.exists():
            with suppress(OSError):
                target.parent.mkdir(parents=True, exist_ok=True)
                _link(source, target)


def _link(source: Path, target: Path) -> None:
    """Creates a link or copy of a file atomically.

    Raises:
        OSError: the file can't be created.
    """
    try:
        os.link(source, target)
    except OSError:
        beside = target.with_name(f"{target.name}.part")
        try:
            shutil.copy2(source, beside)
            beside.rename(target)
        finally:
            beside.unlink(missing_ok=True)


def set_aside(folders: Collection[Path]) -> list[Path]:
    """Moves checkpoints into new folders beside them; returns the new folders, one per parent.

    There the Trainer neither finds, overwrites, nor deletes them for `save_total_limit`.

    Raises:
        OSError: the checkpoints can't be moved.
    """
    places: dict[Path, Path] = {}
    for folder in folders:
        if folder.parent not in places:
            places[folder.parent] = _new_folder(folder.parent)
        folder.rename(places[folder.parent] / folder.name)
    return list(places.values())


def _new_folder(output_dir: Path) -> Path:
    for place in (output_dir / f"set-aside-{number}" for number in count(1)):
        with suppress(FileExistsError):
            place.mkdir()
            return place
    raise AssertionError("there is always a free number")
