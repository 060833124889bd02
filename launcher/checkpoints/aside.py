"""Moves checkpoints out of a training's way."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from itertools import count
from pathlib import Path


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
