"""Counts the samples and tokens of a training batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def size_of(batch: Mapping[str, Any], micro_batch: int) -> tuple[int, int]:
    """Samples and tokens of a batch, with padding; 0 if unknown.

    Args:
        batch: the model's arguments, by name.
        micro_batch: the configured number of samples.

    A row of packed texts counts as `micro_batch` samples. Both texts of a preference pair count as
    one sample, whether they are separate rows or separate arguments.
    """
    named = {key: value for key, value in batch.items() if key.endswith("input_ids")}
    texts = [value for value in named.values() if getattr(value, "ndim", 0) == 2]
    tokens = sum(int(text.numel()) for text in texts)
    if len(named) > 1 or not texts:
        shapes: Iterator[Any] = (getattr(value, "shape", ()) for value in batch.values())
        return next((int(shape[0]) for shape in shapes if len(shape)), 0), tokens
    rows = int(texts[0].shape[0])
    is_one_row = rows == 1 and ("position_ids" in batch or "cu_seq_lens_q" in batch)
    return micro_batch if is_one_row or rows == 2 * micro_batch else rows, tokens
