"""Looks at what `to_empty` leaves: unwritten buffers, and parted weights."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise
from types import ModuleType
from typing import Any

import wrapt

from ...checks import built, layers
from ...checks.finding import Check, Finding
from ...core.private_names import TRANSIENT, VERSION
from ...evidence.observations import observations
from ..callers import user_place
from . import early_steps
from .copies import Copy, copied
from .gradient_places import Owned, places_in
from .models import held_by, known_models
from .reporting import is_on, report, safely
from .schedules import schedules

HOOKED = ("torch.nn.modules.module",)
SAMPLED, MOST = 16, 8
"""Elements and buffers to look at."""

_made: list[tuple[weakref.ref[Any], str, int, int, Copy]] = []
"""Buffers that it has made: module, name, address, writes and values."""
_parted: list[tuple[Owned, Owned, str]] = []
"""Places of one parameter that it has made two, and the user's line."""


def install(module: ModuleType) -> None:
    """Wraps `to_empty`."""
    wrapt.wrap_function_wrapper(module, "Module.to_empty", _emptying)
    early_steps.looking(Check.TRAINED, look)


def _emptying(wrapped: Any, model: Any, args: Any, kwargs: Any) -> Any:
    """Notes buffers that aren't in state dicts, and tied parameters, each of which becomes one."""
    if not is_on(Check.TRAINED):
        return wrapped(*args, **kwargs)
    buffers: list[tuple[Any, str]] = []
    tied: list[tuple[Owned, Owned]] = []
    with observations.going_on():
        buffers.extend(_transient(model))
    if kwargs.get("recurse") is not False:
        safely(Check.TRAINED, lambda: tied.extend(_tied(model)))
    result = wrapped(*args, **kwargs)
    safely(Check.TRAINED, _note, buffers)
    where = user_place() if tied else ""
    _parted.extend((*pair, where) for pair in tied)
    return result


def _transient(model: Any) -> Iterator[tuple[Any, str]]:
    """Modules and names of buffers on the meta device that aren't in state dicts."""
    for module in model.modules():
        for name in TRANSIENT.of(module):
            buffer = getattr(module, name, None)
            if buffer is not None and buffer.is_meta:
                yield module, name


def _tied(model: Any) -> Iterator[tuple[Owned, Owned]]:
    """Pairs of places with the same parameter."""
    places: dict[int, list[Owned]] = {}
    for parameter, place in places_in(model):
        places.setdefault(id(parameter), []).append(place)
    yield from chain.from_iterable(map(pairwise, places.values()))


def _note(found: list[tuple[Any, str]]) -> None:
    for module, name in found[:MOST]:
        buffer = getattr(module, name)
        if buffer.numel() and not buffer.is_meta and not hasattr(buffer, "to_local"):
            copy = _values(buffer)
            if copy is not None:
                about = buffer.data_ptr(), VERSION.of(buffer), copy
                _made.append((weakref.ref(module), name, *about))


def _values(buffer: Any) -> Copy | None:
    """Begins to copy a few elements."""
    return copied([buffer.detach().reshape(-1)[:SAMPLED]])


def look(optimizer: Any, step: int) -> None:
    """Looks before the first step for buffers that nothing has written."""
    if step != 1 or not _made:
        return
    names = {id(module): name for model in known_models() for name, module in model.named_modules()}
    held: list[tuple[str, Copy, Copy]] = []
    for known, name, place, writes, before in _made:
        module = known()
        buffer = getattr(module, name, None)
        if buffer is None or id(module) not in names or buffer.is_meta:
            continue
        is_written = (buffer.data_ptr(), VERSION.of(buffer)) != (place, writes)
        now = None if is_written else _values(buffer)
        if now is not None:
            held.append((f"{names[id(module)]}.{name}".lstrip("."), before, now))
    _made.clear()
    judge = partial(_compare, held, schedules.optimizers[optimizer].where)
    early_steps.later(Check.TRAINED, [now for *_, now in held], judge)


def _compare(held: list[tuple[str, Copy, Copy]], where: str) -> None:
    """Reports buffers that are as they were made."""
    same = [
        name
        for name, before, now in held
        if before.is_there and repr(before.parts()) == repr(now.parts())  # NaN is the same
    ]
    report(layers.uninitialized(same), where=where)


def parted(optimizer: Any) -> Iterator[Finding]:
    """Parted weights that an optimizer's first step trains."""
    held = held_by(optimizer) if _parted else set()
    for first, second, where in _parted:
        parts = first.parameter, second.parameter
        is_trained = all(param is not None and param.requires_grad for param in parts)
        if is_trained and parts[0] is not parts[1] and not held.isdisjoint(map(id, parts)):
            yield replace(built.emptied((first.name, second.name)), where=where)
