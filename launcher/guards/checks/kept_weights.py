"""Checks state dicts that were kept as references to the weights, and used later."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...checks import saved
from ...evidence.observations import observations
from ..callers import user_place
from .copies import local
from .models import known_models, parameters_in
from .reporting import report_here


@dataclass(frozen=True, slots=True)
class Taken:
    """A state dict that a model has returned.

    Attributes:
        states: a weak reference to it.
        step: optimizer steps before.
        where: the user's line that took it.
    """

    states: weakref.ref[Any]
    step: int
    where: str


_taken: dict[int, Taken] = {}
"""The live ones, by id: a dict has no hash."""


def note(states: Any) -> None:
    """Records a state dict that the user's code has taken."""
    step = observations.step()
    if step is None or not isinstance(states, OrderedDict):  # as others have no weak references
        return
    key = id(states)
    reference = weakref.ref(states, lambda _: _taken.pop(key, None))
    _taken[key] = Taken(reference, step, user_place())


def look(content: Any, *, is_loaded: bool) -> None:
    """Checks the state dicts in an object that is saved or loaded."""
    step = observations.step()
    for states in _states_in(content):
        taken = _taken[id(states)]
        if step is None or taken.step >= step:
            continue
        live = {_place(param) for _, _, param in parameters_in(known_models())} - {0}
        name = next((name for name, tensor in states.items() if _place(tensor) in live), None)
        if name is not None:
            steps = taken.step, step
            report_here(saved.by_reference(name, *steps, taken.where, is_loaded=is_loaded))


def _states_in(content: Any) -> Iterator[Any]:
    """The recorded state dicts in an object: itself, or a value of it."""
    values = content.values() if isinstance(content, Mapping) else ()
    for value in (content, *values):
        taken = _taken.get(id(value))
        if taken is not None and taken.states() is value:
            yield value


def _place(value: Any) -> int:
    """The address of a tensor's elements on this rank; 0 for an empty one or another object."""
    part = local(value) if hasattr(value, "data_ptr") else None
    return 0 if part is None or not part.numel() else int(part.data_ptr())
