"""The values that a field of a message may have: a predicate, and its words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..core.count_of import count_of


@dataclass(frozen=True, slots=True)
class Bound:
    """The values that a field may have: in words, and as a predicate."""

    words: str
    allows: Callable[[Any], bool]


def number(least: float, most: float) -> Bound:
    """A number in a range, both ends included; never NaN."""
    return Bound(f"from {least:,} to {most:,}", lambda value: least <= value <= most)


def text(most: int) -> Bound:
    """A text of at most so many characters."""
    return Bound(
        f"a text of at most {count_of(most, 'character')}", lambda value: len(value) <= most
    )


def pattern(expression: re.Pattern[str], words: str) -> Bound:
    """A text that an expression matches as a whole."""
    return Bound(words, lambda value: expression.fullmatch(value) is not None)
