"""Reads the weights of a checkpoint, decoding the shapes of quantized tensors.

Layouts: GPTQ (gptqmodel/nn_modules/qlinear), AWQ (awq/modules/linear/gemm.py), bitsandbytes
(bitsandbytes/functional.py, QuantState.as_dict), FP8 in blocks (transformers/integrations/
finegrained_fp8.py), compressed-tensors (compressed_tensors/compressors).
"""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ...core.model import Weight, grouped
from ...core.plain_json import parsed
from .safetensors_headers import Tensor

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
