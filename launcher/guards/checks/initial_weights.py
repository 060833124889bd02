"""Samples of models' parameters before the first step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...checks.finding import Check
from .copies import Copy, copied, sample, spread
from .models import parameters_in
from .reporting import is_on

_held: dict[str, Copy] = {}


def remember(models: Iterable[Any]) -> None:
    """Begins to copy samples of the models, once."""
    usable = [
        (name, parameter)
        for _, name, parameter in parameters_in(models)
        if parameter.requires_grad and name not in _held and sample(parameter) is not None
    ]
    if _held or not is_on(Check.SAVED):
        return
    for name, parameter in spread(usable):
        copy = copied([sample(parameter)])
        if copy is not None:
            _held[name] = copy


def values() -> dict[str, Sequence[float]]:
    """The samples that have arrived, by the parameters' names."""
    return {name: copy.parts()[0] for name, copy in _held.items() if copy.is_there}
