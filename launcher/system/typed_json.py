"""Reads the JSON files of a run directory, each as a type."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from ..core.errors import Refused, reason_of
from . import regular_files

Type = TypeVar("Type")


def read(path: Path, kind: type[Type]) -> Type | Refused:
    """A file's content, or why it can't be read."""
    try:
        return msgspec.json.decode(regular_files.read(path), type=kind)
    except OSError as error:
        return Refused(f"{path} can't be read: {reason_of(error)}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Refused(f"{path} isn't of this version of safe-launch, or is cut off")
