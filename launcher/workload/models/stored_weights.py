"""Reads the weights of a model's safetensors files from their headers, also quantized ones.

The format (https://huggingface.co/docs/safetensors): eight bytes with the length of a JSON text,
the text, the tensors' bytes.

Layouts of quantized tensors: GPTQ (gptqmodel/nn_modules/qlinear), AWQ (awq/modules/linear/gemm.py),
bitsandbytes (bitsandbytes/functional.py, QuantState.as_dict), FP8 in blocks (transformers/
integrations/finegrained_fp8.py), compressed-tensors (compressed_tensors/compressors).
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import LaunchError
from ...core.model import Weight, grouped
from ...core.plain_json import parsed
from ...core.quantities import count_of
from ...system import regular_files

_LONGEST = 100_000_000
"""The longest header that the format allows, in bytes."""
_FLOATS = ("F64", "F32", "F16", "BF16")
_BUFFERS = re.compile(
    r"(rotary_emb\.|inv_freq$|running_(mean|var)$|masked_bias$|e_score_correction_bias$"
    r"|(^|\.)h\.\d+\.attn\.bias$|attention\.bias$)"
)
"""Constants in old checkpoints that aren't weights."""
_PIECES = re.compile(
    r"\.(qweight|qzeros|scales|g_idx|SCB|weight_format|weight_scale_inv|weight_scale|input_scale"
    r"|weight_packed|weight_shape|weight_zero_point|weight_g_idx"
    r"|weight\.(absmax|quant_map|nested_absmax|nested_quant_map|quant_state\..+))$"
)
"""Suffixes of the tensors of a quantized weight."""


_LEFT_OUT = 0.01
"""Maximum share of a checkpoint's bytes in constants; more indicates an unknown packing."""


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


def weights_of(
    tensors: Mapping[str, Tensor], config: Mapping[str, Any]
) -> tuple[Weight, ...] | None:
    """The weights in a checkpoint, with equal weights of all layers as one.

    A quantized weight's bits include its scales and other parts; the weight is never trained. None
    if the packing is unknown.
    """
    pieces: dict[str, dict[str, Tensor]] = {}
    plain: list[Tensor] = []
    for tensor in tensors.values():
        piece = _PIECES.search(tensor.name)
        if piece is not None:
            pieces.setdefault(tensor.name[: piece.start()], {})[piece.group(1)] = tensor
        elif not _BUFFERS.search(tensor.name):
            plain.append(tensor)
    quantization = config.get("quantization_config")
    settings = quantization if isinstance(quantization, Mapping) else {}
    quantized = Counter(
        (grouped([(name, shape, False)])[0].name, shape, bits)
        for name, shape, bits in _quantized(pieces, tensors, settings)
    )
    packed = {f"{module}.weight" for module in pieces}
    others = [
        weight for weight in plain if weight.name not in packed and weight.dtype not in _FLOATS
    ]
    whole = sum(tensor.end - tensor.begin for tensor in tensors.values())
    if sum(tensor.end - tensor.begin for tensor in others) > _LEFT_OUT * whole:
        return None
    floats = grouped(
        (tensor.name, tensor.shape, True)
        for tensor in plain
        if tensor.name not in packed and tensor.dtype in _FLOATS
    )
    return floats + tuple(
        Weight(name, shape, count, trained=False, bits=bits)
        for (name, shape, bits), count in quantized.items()
    )


def _quantized(
    pieces: Mapping[str, Mapping[str, Tensor]],
    tensors: Mapping[str, Tensor],
    settings: Mapping[str, Any],
) -> Iterator[tuple[str, tuple[int, ...], float]]:
    """Name, shape and bits of each quantized weight."""
    for module, parts in pieces.items():
        name = f"{module}.weight"
        weight = tensors.get(name)
        stored = sum(part.end - part.begin for part in parts.values())
        shape: tuple[int, ...]
        if "qweight" in parts:
            shape = _unpacked(parts["qweight"].shape, parts.get("scales"), settings)
        elif "weight_shape" in parts:
            content = parts["weight_shape"].content()
            shape = struct.unpack(f"<{len(content) // 8}q", content[: len(content) // 8 * 8])
        elif weight is None:
            continue
        else:
            stored += weight.end - weight.begin
            shape = _recorded(parts) or weight.shape
        elements = math.prod(shape)
        if elements > 0:
            yield name, shape, round(8 * stored / elements, 4)


def _unpacked(
    packed: tuple[int, ...], scales: Tensor | None, settings: Mapping[str, Any]
) -> tuple[int, ...]:
    """[outputs, inputs] of GPTQ's and AWQ's packed integers."""
    bits = settings.get("bits") or settings.get("w_bit")
    inputs, outputs = packed if len(packed) == 2 else (0, 0)
    if scales is not None and len(scales.shape) == 2 and scales.shape[1] != outputs:
        return scales.shape[1], inputs  # AWQ packs outputs
    return outputs, inputs * 32 // (bits if isinstance(bits, int) and bits > 0 else 4)


def _recorded(parts: Mapping[str, Tensor]) -> tuple[int, ...] | None:
    """The shape that bitsandbytes stores with its packed 4-bit weights."""
    for piece, tensor in parts.items():
        if piece.startswith("weight.quant_state."):
            try:
                return tuple(int(size) for size in parsed(tensor.content())["shape"])
            except (KeyError, TypeError, ValueError, UnicodeDecodeError, OSError):
                return None
    return None
