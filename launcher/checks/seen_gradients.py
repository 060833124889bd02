"""Gradient samples of a rank, and their encoding."""

from __future__ import annotations

import base64
import itertools
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

WINDOWS = 2
"""Steps to inspect: only faults in all of them are reported."""
PARTS = 4
"""Additions to keep separate per step; surplus ones are summed with the last but one."""
PARAMETERS = 4
ELEMENTS = 16
"""Maximum elements per parameter."""

Row = Sequence[float]


class Way(StrEnum):
    """Mechanism that takes gradients from backward passes to the optimizer."""

    DDP = "ddp"
    SCRIPT = "script"
    """Custom code in the script: ranks may train separately on purpose."""
    DEEPSPEED = "deepspeed"
    FSDP = "fsdp2"


@dataclass(frozen=True, slots=True)
class Passed:
    """Elements of a parameter in a step, on one rank.

    Attributes:
        parts: the addition of each backward pass.
        reached: the optimizer's gradient; NaN for elements on other ranks.
    """

    parts: tuple[Row, ...]
    reached: Row


@dataclass(frozen=True, slots=True)
class Seen:
    """Gradient samples of a rank.

    Attributes:
        way: the mechanism that takes gradients to the optimizer.
        roundoff: unit roundoff of the coarsest dtype on the way.
        windows: samples of each parameter in each step.
    """

    way: Way
    roundoff: float
    windows: tuple[tuple[Passed, ...], ...]


def encoded(seen: Seen) -> str:
    """Encodes the way, the roundoff's exponent, and each parameter's rows in each step."""
    words = [_word(passed) for window in seen.windows for passed in window]
    return " ".join((seen.way, str(round(math.log2(seen.roundoff))), *words))


def _word(passed: Passed) -> str:
    values = [*itertools.chain.from_iterable(passed.parts), *passed.reached]
    packed = struct.pack(f"<{len(values)}f", *values)
    return f"{len(passed.reached)}:{base64.b64encode(packed).decode()}"


def decoded(value: str, parameters: int) -> Seen | None:
    """Decodes a rank's message; None if invalid."""
    try:
        way, exponent, *words = value.split()
        rows = [_passed(word) for word in words]
        header = Way(way), 2.0 ** max(-64, min(0, int(exponent)))
    except (ValueError, struct.error):
        return None
    if len(rows) != WINDOWS * parameters:
        return None
    windows = (rows[begin : begin + parameters] for begin in range(0, len(rows), parameters))
    return Seen(*header, tuple(map(tuple, windows)))


def _passed(word: str) -> Passed:
    """Decodes one parameter's rows.

    Raises:
        ValueError: the word is invalid.
        struct.error: the word is invalid.
    """
    count, _, text = word.partition(":")
    packed, length = base64.b64decode(text, validate=True), int(count)
    values = struct.unpack(f"<{len(packed) // 4}f", packed)
    if not 0 < length <= ELEMENTS or len(values) % length or not values:
        raise ValueError(word)
    rows = [values[begin : begin + length] for begin in range(0, len(values), length)]
    *parts, reached = rows
    if len(parts) > PARTS:
        raise ValueError(word)
    return Passed(tuple(parts), reached)
