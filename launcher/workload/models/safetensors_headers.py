"""Reads names and shapes of weights from the headers of safetensors files.

The format (https://huggingface.co/docs/safetensors): eight bytes with the length of a JSON text,
the text, the tensors' bytes.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import LaunchError
from ...core.quantities import count_of
from ...system import regular_files

_LONGEST = 100_000_000
"""The longest header that the format allows, in bytes."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in a file.

    Attributes:
        name: as in the state dict.
        dtype: the format's dtype name, e.g. `BF16`, `I32`, `F8_E4M3`.
        shape: as stored.
        begin: offset of its first byte in the file.
        end: offset after its last byte.
        path: the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int
    path: Path

    def content(self) -> bytes:
        """The tensor's bytes."""
        with regular_files.opened(self.path) as file:
            file.seek(self.begin)
            return file.read(self.end - self.begin)


def read_tensors(paths: Iterable[Path]) -> dict[str, Tensor]:
    """The tensors of a model's files, by name.

    Raises:
        LaunchError: a file isn't a safetensors file, or is incomplete.
    """
    return {tensor.name: tensor for path in paths for tensor in _header(path)}


def _header(path: Path) -> list[Tensor]:
    """The tensors of a file."""
    try:
        with regular_files.opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            first = file.read(8)
            length = struct.unpack("<Q", first)[0] if len(first) == 8 else 0
            pointer = first == b"version "
            if not 2 <= length <= min(_LONGEST, size - 8):
                raise _broken(path, "its header is cut off or missing", is_pointer=pointer)
            header = json.loads(file.read(length))
    except (ValueError, RecursionError):
        raise _broken(path, "its header isn't JSON") from None
    except OSError as error:
        raise LaunchError.because(error, f"{path} can't be read") from error
    if not isinstance(header, dict):
        raise _broken(path, "its header isn't a JSON object")
    start = 8 + length
    tensors = [
        _tensor(path, name, entry, start)
        for name, entry in header.items()
        if name != "__metadata__"
    ]
    whole = max((tensor.end for tensor in tensors), default=start)
    if whole > size:
        raise _broken(path, f"{size:,} of {count_of(whole, 'byte')} exist")
    return tensors


def _tensor(path: Path, name: str, entry: Any, start: int) -> Tensor:
    """The tensor of an entry in a header."""
    try:
        shape = tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        numbers = (*shape, begin, end)
        if not all(type(number) is int and number >= 0 for number in numbers) or begin > end:
            raise ValueError
        return Tensor(name, str(entry["dtype"]), shape, start + begin, start + end, path)
    except (KeyError, TypeError, ValueError):
        raise _broken(path, f"the header's entry {name!r} has no valid shape and offsets") from None


def _broken(path: Path, why: str, *, is_pointer: bool = False) -> LaunchError:
    """The error for a broken file, with a hint."""
    if is_pointer:
        return LaunchError(
            f"{path} is a pointer of Git LFS, not the weights themselves",
            "run `git lfs pull` in that folder",
        )
    problem = f"{path} isn't a complete safetensors file: {why}"
    return LaunchError(problem, "download or save it again")


def shards(folder: Path) -> list[Path]:
    """The files with a model's weights; empty if the folder has no safetensors.

    Raises:
        LaunchError: the index is invalid, or a file that it names is missing.
    """
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = _indexed(index)
        for name in names:
            if not (folder / name).exists():
                problem = f"{index}: weight_map names {name}, which isn't in the folder"
                raise LaunchError(problem, "download it again")
        return [folder / name for name in names]
    whole = folder / "model.safetensors"
    if whole.exists():
        return [whole]
    left_out = ("adapter_model", "consolidated", "optimizer")
    return sorted(
        path for path in folder.glob("*.safetensors") if not path.name.startswith(left_out)
    )


def _indexed(index: Path) -> list[str]:
    """The files in an index."""
    try:
        content = json.loads(regular_files.read(index))
    except (OSError, ValueError, RecursionError) as error:
        raise LaunchError.because(error, f"{index} can't be read") from error
    weights = content.get("weight_map") if isinstance(content, Mapping) else None
    if not isinstance(weights, dict) or not all(
        isinstance(weight, str) for weight in weights.values()
    ):
        raise LaunchError(f"{index}: weight_map isn't a map of names to files")
    return sorted(set(weights.values()))
