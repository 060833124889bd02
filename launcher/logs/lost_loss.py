"""A loss that is no number up to the end: the training ran, and what it made is lost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from ..evidence.failure_record import FailureRecord
from .attempts import Evidence
from .progress_signs import IS_COMPLETE, Written

LOSS = re.compile(
    r"(?<![\w/])(?:(?:train(?:ing)?|lm|eval|val)[ _/]?)?loss['\"]?\s*[:=]?\s*['\"]?"
    r"(?P<value>nan|[-+]?\d[\d.]*(?:e[-+]?\d+)?)\b",
    re.IGNORECASE,
)
"""A loss in a line of any loop, with its value."""
NO_GRADIENT = re.compile(r"grad[ _]?norm['\"]?\s*[:=]?\s*['\"]?nan\b", re.IGNORECASE)
LEAST = 2
"""Lines with such a loss, at least: a single one may be of a step that was skipped."""
MESSAGE = "the loss is not a number, from line {first} to the end"


def lost_loss(lines: Sequence[Written]) -> Evidence | None:
    """The evidence that the last losses aren't numbers; None where they are.

    Args:
        lines: the last lines of a file.
    """
    losses = [
        line for line in lines if LOSS.search(line.text) and not IS_COMPLETE.search(line.text)
    ]
    lost = list(takewhile(lambda line: _is_lost(line.text), reversed(losses)))
    if len(lost) < LEAST:
        return None
    first = lost[-1]
    record = FailureRecord(None, float(first.number), message=MESSAGE.format(first=first.number))
    return Evidence(record, first.file, ((first.number, first.text.strip()),))


def _is_lost(text: str) -> bool:
    """Whether a line's loss is no number; transformers' `logging_nan_inf_filter` makes it 0."""
    values = [found["value"].lower() for found in LOSS.finditer(text)]
    return "nan" in values or (float(values[0]) == 0 and NO_GRADIENT.search(text) is not None)
