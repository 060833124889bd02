"""Follows state dicts: kept by reference, loaded into themselves, or loaded without states."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...checks import saved
from ...core.private_names import VERSION
from ...evidence.observations import observations
from ..callers import user_place
from .copies import Copy, copied, local, sample, spread
from .models import known_models, parameters_in
from .reporting import report_here


@dataclass(frozen=True, slots=True)
class Taken:
    """A state dict that a model has returned.

    Attributes:
        states: a weak reference to it.
        step: optimizer steps before; None before the first optimizer.
        where: the user's line that took it.
        writes: how often its tensors had been written in place.
        values: samples of some of them, as collectives and `.data` write without being counted.
    """

    states: weakref.ref[Any]
    step: int | None
    where: str
    writes: int
    values: Copy | None


_taken: dict[int, Taken] = {}
"""The live ones, by id: a dict has no hash."""


def note(states: Any) -> None:
    """Records a state dict that the user's code has taken."""
    if not isinstance(states, OrderedDict):  # as others have no weak references
        return
    key = id(states)
    reference = weakref.ref(states, lambda _: _taken.pop(key, None))
    about = observations.step(), user_place()
    _taken[key] = Taken(reference, *about, _writes(states), _values(states))


def look(content: Any, *, is_loaded: bool) -> None:
    """Checks the state dicts in an object that is saved or loaded."""
    step = observations.step()
    for states in _states_in(content):
        taken = _taken[id(states)]
        if step is None or taken.step is None or taken.step >= step:
            continue
        live = {_place(param) for _, _, param in parameters_in(known_models())} - {0}
        name = next((name for name, tensor in states.items() if _place(tensor) in live), None)
        if name is not None:
            about = name, taken.step, taken.where
            report_here(saved.by_reference(*about, is_loaded=is_loaded), step=step)


def is_loaded_into_itself(model: Any, states: Mapping[str, Any]) -> bool:
    """Whether a recorded state dict has the model's own tensors alone, unwritten since.

    Loads of torch.distributed.checkpoint write into them before. On a device, whose values would
    have to be waited for, it is taken for written.
    """
    taken = _taken.get(id(states))
    if taken is None or id(taken.states()) != id(states) or taken.writes != _writes(states):
        return False
    copies = taken.values, _values(states)
    seen = [copy.parts() for copy in copies if copy is not None and copy.is_there]
    if len(seen) < len(copies) or seen[0] != seen[1]:
        return False
    tensors = (*model.named_parameters(), *model.named_buffers())
    own = {name: _place(tensor) for name, tensor in tensors}
    names = [name for name, tensor in states.items() if _place(tensor)]
    return bool(names) and all(own.get(name) == _place(states[name]) for name in names)


def _writes(states: Mapping[str, Any]) -> int:
    """How often tensors were written in place, a count that parameters share with their states."""
    return sum(VERSION.of(tensor) for tensor in states.values() if hasattr(tensor, "data_ptr"))


def _values(states: Mapping[str, Any]) -> Copy | None:
    """Samples of some tensors; None if there are none, or if a graph is being captured."""
    tensors = [tensor for tensor in states.values() if hasattr(tensor, "data_ptr")]
    chosen = [tensor for tensor in tensors if tensor.device == tensors[0].device]
    parts = [part for tensor in spread(chosen) if (part := sample(local(tensor))) is not None]
    return copied(parts) if parts else None


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
