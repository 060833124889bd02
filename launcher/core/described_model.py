"""A model as JSON: described by the process that has it, and checked by the receiver."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from .setting_table import TOO_LARGE

DIMENSIONS = 8
"""Of a weight, at most."""
COUNT = 1 << 28
"""Equal weights at most."""


def is_described_model(shape: Mapping[str, Any]) -> bool:
    """Whether it has the form of `shape_of`'s results."""
    weights = shape.get("weights")
    return (
        isinstance(shape.get("config"), dict)
        and isinstance(weights, list)
        and all(isinstance(row, list) and len(row) == 5 and _is_weight(*row) for row in weights)
    )


def _is_weight(name: object, shape: object, trained: object, bits: object, count: object) -> bool:
    return (
        isinstance(name, str)
        and isinstance(shape, list)
        and len(shape) <= DIMENSIONS
        and all(type(size) is int and 0 <= size < TOO_LARGE for size in shape)
        and isinstance(trained, bool)
        and (bits is None or (isinstance(bits, int | float) and 0 < bits <= 64))
        and type(count) is int
        and 0 < count <= COUNT
    )


def shape_of(model: Any) -> dict[str, Any]:
    """A model as in `core/model.py`: its configuration, and its parameters by kind.

    Each kind has a name (every number in it as `*`), shape, trained, bits if quantized
    (bitsandbytes keeps the logical shape of 4-bit weights in `quant_state`), and count.
    """
    counts: Counter[tuple[str, tuple[int, ...], bool, float | None]] = Counter()
    for name, parameter in model.named_parameters():
        kind = re.sub(r"^(module\.|_orig_mod\.)+", "", name)
        kind = re.sub(r"(?<![^.])\d+(?![^.])", "*", kind)
        kind = re.sub(r"^base_model\.model\.|\.base_layer|\.default(?=\.weight)", "", kind)
        state = getattr(parameter, "quant_state", None)
        whole = getattr(parameter, "ds_shape", None) or (
            parameter.shape if state is None else state.shape
        )
        bits = (8.0 if parameter.element_size() == 1 else None) if state is None else 4.5
        counts[kind, tuple(map(int, whole)), bool(parameter.requires_grad), bits] += 1
    config = getattr(model, "config", None)
    described = {} if config is None or not hasattr(config, "to_dict") else config.to_dict()
    weights = [[*key, count] for key, count in counts.items()]
    plain_config = json.dumps(described, default=str, skipkeys=True)
    return {"config": json.loads(plain_config), "weights": weights}
