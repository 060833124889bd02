"""Reads how long a schedule is, and how long the script plans to train.

A schedule's length is in its attributes, or that of the script's own function; the script's numbers
of epochs and steps are known by their variables' names.
"""

from __future__ import annotations

import dis
import re
import weakref
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from time import perf_counter
from types import FunctionType, ModuleType
from typing import Any

from ..callers import user_values

DOUBLINGS = 22
"""The last power of 2 at which a function is tried."""
LONGEST = 0.002
"""Seconds after which a function isn't called any more."""
LEAST_RATE = 1e-12
"""Minimum part of the rate at the step before a schedule's end."""
WRITING = ("STORE_ATTR", "STORE_DEREF", "STORE_GLOBAL", "STORE_SUBSCR")
"""Instructions that change what isn't a function's own variable."""
EPOCHS = re.compile(r"(?:(?:num|n|max|total|train|training)_)*epochs", re.IGNORECASE)
"""Names of a number of epochs; not of one that counts them, as a schedule's `last_epoch`."""
UNIT = r"(?:(?:train|training|update|optimizer|optimization)_)?(?:steps|iters|iterations|updates)"
LIMIT = re.compile(rf"max_{UNIT}", re.IGNORECASE)
"""Names of the number of optimizer steps after which a loop ends."""
STEPS = re.compile(rf"(?:(?:max|total|num|n)_)*{UNIT}", re.IGNORECASE)
"""Names of any number of steps, such as that of a schedule's."""
MOST = 200
"""Maximum variables to look at in one place."""

_ends: weakref.WeakKeyDictionary[FunctionType, int | None] = weakref.WeakKeyDictionary()


def length_of(scheduler: Any) -> int | None:
    """Steps until a schedule's final rate; None if it has none.

    Schedules that repeat, warm up or stay constant have none. torch's OneCycleLR, PolynomialLR and
    falling LinearLR have one, and transformers' schedules with a number of steps.
    """
    kind = type(scheduler).__name__
    if kind == "LambdaLR":
        return given_steps(scheduler, "num_training_steps") or _end_of(scheduler.lr_lambdas)
    names = {"OneCycleLR": "total_steps", "PolynomialLR": "total_iters", "LinearLR": "total_iters"}
    if kind == "LinearLR" and scheduler.end_factor >= scheduler.start_factor:
        return None
    return _positive(getattr(scheduler, names.get(kind, ""), None))


def _end_of(functions: Sequence[Any]) -> int | None:
    """The step from which on a function of the script's gives no rate; None if there is none.

    It is called for steps far ahead, twice as far each time, and no more once that takes long.
    """
    function = functions[0]
    if len({*functions}) > 1 or not isinstance(function, FunctionType) or _writes(function):
        return None
    if function not in _ends:
        _ends[function] = _searched(function)
    return _ends[function]


def _searched(function: FunctionType) -> int | None:
    began = perf_counter()

    def is_over(step: int) -> bool:
        if perf_counter() - began > LONGEST:
            raise TimeoutError
        return bool(0 == function(step) == function(2 * step) == function(3 * step))

    with suppress(Exception):  # it may have no rate for a later step
        late = next((1 << power for power in range(4, DOUBLINGS) if is_over(1 << power)), 0)
        end = bisect_left(range(late), x=True, lo=late // 2, key=is_over)
        return end if end and function(end - 1) > LEAST_RATE else None  # not rounded to 0
    return None


def _writes(function: FunctionType) -> bool:
    """Whether a function changes anything but its variables."""
    names = {one.opname for one in dis.get_instructions(function)}
    return not names.isdisjoint(WRITING)


def half_period(scheduler: Any) -> int | None:
    """Steps until a cosine's minimum, from which it rises again; None for other schedules.

    The cosine may be the last of a `SequentialLR`.
    """
    kind = type(scheduler).__name__
    if kind == "SequentialLR":
        parts, turns = (vars(scheduler).get(name) for name in ("_schedulers", "_milestones"))
        half = half_period(parts[-1]) if parts and turns else None
        return half and half + int(turns[-1])
    return _positive(scheduler.T_max) if kind == "CosineAnnealingLR" else None


def turns_of(scheduler: Any) -> tuple[int, ...]:
    """Steps at which a schedule without an end changes the rate, as far as it names them."""
    names = {"StepLR": "step_size", "MultiStepLR": "milestones"}
    named = getattr(scheduler, names.get(type(scheduler).__name__, ""), ())
    return tuple(filter(None, map(_positive, named if isinstance(named, dict) else (named,))))


def given_steps(scheduler: Any, name: str) -> int | None:
    """A step count argument of a transformers schedule."""
    given = (getattr(function, "keywords", {}) for function in getattr(scheduler, "lr_lambdas", ()))
    numbers = {keywords.get(name) for keywords in given}
    return _positive(numbers.pop() if len(numbers) == 1 else None)


def _positive(number: object) -> int | None:
    return number if isinstance(number, int) and number > 0 else None


def planned(names: re.Pattern[str]) -> set[int]:
    """The numbers of these names among the variables of the user's functions that are running."""
    return {number for values in user_values() for number in _numbers(values, names)}


def _numbers(values: Mapping[str, Any], names: re.Pattern[str], depth: int = 2) -> Iterator[int]:
    """Numbers by the names of variables and attributes."""
    for name, value in [*islice(values.items(), MOST)]:
        if type(value) is int and names.fullmatch(str(name)):
            yield value
        elif depth and not isinstance(value, ModuleType | type):
            inner = value if isinstance(value, dict) else getattr(value, "__dict__", {})
            yield from _numbers(inner, names, depth - 1)
