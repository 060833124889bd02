"""Detects a loss that stays NaN to the end of a completed training."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from ..evidence.failure_record import FailureRecord
from .attempts import Evidence
from .progress_signs import IS_COMPLETE, Written

LOSS = re.compile(
    r"(?<![\w/])(?:(?:train(?:ing)?|lm)[ _/])?loss(?:_step)?['\"]?\s*[:=]?\s*['\"]?"
    r"(?P<value>nan|[-+]?\d[\d.]*(?:e[-+]?\d+)?)(?![a-z])",
    re.IGNORECASE,
)
"""A training loss with its value in any loop's line; the first counts."""
EVALUATED = re.compile(r"\b(?:val(?:id(?:ation)?)?|eval(?:uation)?|test|dev)(?:\b|_)", re.I)
"""Words before a loss other than the training's, which is NaN without samples."""
NO_GRADIENT = re.compile(r"grad[ _]?norm['\"]?\s*[:=]?\s*['\"]?nan\b", re.IGNORECASE)
LEAST = 2
"""Minimum lines with such a loss: a single one may belong to a skipped step."""


def lost_loss(lines: Sequence[Written]) -> Evidence | None:
    """Evidence that the last losses aren't numbers, if so."""
    losses = [(line, loss) for line in lines if (loss := training_loss(line.text))]
    lost = [line for line, _ in takewhile(lambda pair: _is_lost(*pair), reversed(losses))]
    if len(lost) < LEAST:
        return None
    first = lost[-1]
    message = f"the loss is not a number, from line {first.number} to the end"
    record = FailureRecord(None, float(first.number), message=message)
    return Evidence(record, first.file, ((first.number, first.text.strip()),))


def training_loss(text: str) -> re.Match[str] | None:
    """The training loss in a line; None if absent or an evaluation's."""
    loss = LOSS.search(text)
    if loss is None or loss["value"].count(".") > 1:  # e.g. a version
        return None
    is_other = EVALUATED.search(text, 0, loss.start()) or IS_COMPLETE.search(text)
    return None if is_other else loss


def _is_lost(line: Written, loss: re.Match[str]) -> bool:
    """Whether a loss is NaN; transformers' `logging_nan_inf_filter` turns it into 0."""
    value = loss["value"].lower()
    return value == "nan" or (float(value) == 0 and NO_GRADIENT.search(line.text) is not None)
