"""What a rank has seen of gradients between backward and the optimizer, and how it is sent."""

from __future__ import annotations

import base64
import itertools
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

WINDOWS = 2
"""Steps that are looked at: only a fault of all of them is found."""
PARTS = 4
"""Additions of a step that are kept apart; of more, those before the last are one."""
PARAMETERS = 4
ELEMENTS = 16
"""Of a parameter, at most."""

Row = Sequence[float]


class Way(StrEnum):
    """What takes gradients from backward passes to the optimizer."""

    DDP = "ddp"
    SCRIPT = "script"
    """Whatever the script does: each rank may be meant to train alone."""
    DEEPSPEED = "deepspeed"
    FSDP = "fsdp2"


@dataclass(frozen=True, slots=True)
class Passed:
    """Elements of a parameter in a step, on one rank.

    Attributes:
        parts: what each backward pass has added.
        reached: what the optimizer got; NaN for what this rank doesn't hold.
    """

    parts: tuple[Row, ...]
    reached: Row


@dataclass(frozen=True, slots=True)
class Seen:
    """What a rank has seen.

    Attributes:
        way: what takes gradients to the optimizer.
        roundoff: of the coarsest type on that way.
        windows: for each step, each parameter.
    """

    way: Way
    roundoff: float
    windows: tuple[tuple[Passed, ...], ...]


def encoded(seen: Seen) -> str:
    """As words: the way, the roundoff's exponent, and the rows of each parameter in each step."""
    words = [_word(passed) for window in seen.windows for passed in window]
    return " ".join((seen.way, str(round(math.log2(seen.roundoff))), *words))


def _word(passed: Passed) -> str:
    values = [*itertools.chain.from_iterable(passed.parts), *passed.reached]
    packed = struct.pack(f"<{len(values)}f", *values)
    return f"{len(passed.reached)}:{base64.b64encode(packed).decode()}"


def decoded(value: str, parameters: int) -> Seen | None:
    """What a rank has sent; None for anything else."""
    try:
        way, exponent, *words = value.split()
        rows = [_passed(word) for word in words]
        told = Way(way), 2.0 ** max(-64, min(0, int(exponent)))
    except (ValueError, struct.error):
        return None
    if len(rows) != WINDOWS * parameters:
        return None
    windows = (rows[begin : begin + parameters] for begin in range(0, len(rows), parameters))
    return Seen(*told, tuple(map(tuple, windows)))


def _passed(word: str) -> Passed:
    """One parameter's rows.

    Raises:
        ValueError: it is something else.
        struct.error: the same.
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
