"""Checks whether a checkpoint's file is complete, if its format shows it."""

from __future__ import annotations

import json
import re
import struct
import zipfile
from pathlib import Path

from ..core.plain_json import parsed
from ..core.quantities import GIB
from ..system import regular_files

ARCHIVE = re.compile(
    r".*_states\.pt|(?:optimizer|scheduler|scaler)\.pt|rng_state.*\.pth|training_args\.bin"
    r"|(?:pytorch|adapter)_model.*\.bin|optimizer\.bin"
)
"""Files of `torch.save`: zip archives, with their directory at the end."""
LARGEST = GIB
"""Maximum bytes of a checkpoint's JSON, whose loss history grows with the steps."""


def is_whole(path: Path) -> bool:
    """Whether a file isn't cut off; True for unknown formats."""
    if path.suffix == ".safetensors":
        return _is_whole_safetensors(path)
    if ARCHIVE.fullmatch(path.name) or _begins_as_archive(path):
        return _has_directory(path)
    return path.suffix != ".json" or _is_json(path)


def _is_whole_safetensors(path: Path) -> bool:
    """Whether the file ends with the last tensor, by the header (JSON after 8 bytes of length)."""
    size = path.stat().st_size
    with regular_files.opened(path) as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if 8 + length > size:
            return False
        try:
            header = dict(parsed(file.read(length)))
            header.pop("__metadata__", None)
            ends = [int(tensor["data_offsets"][1]) for tensor in header.values()]
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return False
    return size == 8 + length + max(ends, default=0)


def _begins_as_archive(path: Path) -> bool:
    with regular_files.opened(path) as file:
        return file.read(4) == b"PK\x03\x04"


def _has_directory(path: Path) -> bool:
    try:
        with regular_files.opened(path) as file, zipfile.ZipFile(file) as archive:
            return bool(archive.namelist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        return False


def _is_json(path: Path) -> bool:
    """Whether the first JSON document is complete; users' callbacks may write anything."""
    text = regular_files.read(path, LARGEST).decode(errors="replace").lstrip()
    try:
        json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return bool(text) and text[0] not in "{["
    return True
