"""The form in which a worker describes its model, checked where the text came from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SIZE = 1 << 63
"""Elements along a dimension, fewer than which every tensor of torch's has."""
DIMENSIONS = 8
"""Of a weight, at most."""
COUNT = 1 << 28
"""Equal weights at most."""


def is_described_model(shape: Mapping[str, Any]) -> bool:
    """Whether it has the form of what `evidence.observations.shape_of` returns."""
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
        and all(type(size) is int and 0 <= size < SIZE for size in shape)
        and isinstance(trained, bool)
        and (bits is None or (isinstance(bits, int | float) and 0 < bits <= 64))
        and type(count) is int
        and 0 < count <= COUNT
    )
