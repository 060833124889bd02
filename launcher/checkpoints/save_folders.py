"""Handles ranks that save to different folders.

A script that names its folder by time or a random number creates another one on each rank. Rank 0
then has a checkpoint's weights, and each rank's part is in a separate folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from .checkpoint import Saves
from .discovery import present


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
