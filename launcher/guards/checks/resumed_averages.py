"""Compares the beginnings of averages with the loaded checkpoint's, and with the model's."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ...checks import resumed
from ...checks.averages import is_begun_apart
from ...checks.finding import Check
from ..callers import FRAMEWORKS, is_called_by, user_place
from . import early_steps
from .averages import beside, chosen, copies_of, flat, named, note, values_of
from .copies import Copy
from .loaded_parts import loaded
from .reporting import report

HOOKED = ("torch.nn.modules.module",)
AVERAGE = re.compile(r"(^|_|\.)(ema|avg|average|averaged|swa|shadow|teacher|target)(_|\.|$)", re.I)
"""Keys of averages in a checkpoint."""
JUDGED = range(3, 11)
"""Steps before which a copy must have begun to move."""


@dataclass(slots=True)
class Begun:
    """A copy that was made before its model's weights were loaded, or one at the first step.

    Attributes:
        copy: the copy.
        model: its model.
        names: the sampled parameters.
        values: the copy's values.
        models: the model's values.
        where: the user's line that loads.
        key: the checkpoint's key of an average that isn't used; empty if the model was loaded late.
    """

    copy: weakref.ref[Any]
    model: weakref.ref[Any]
    names: tuple[str, ...]
    values: Copy
    models: Copy
    where: str
    key: str = ""
    last: Copy | None = None


_made_before: list[Begun] = []
_begun: weakref.WeakKeyDictionary[Any, list[Begun]] = weakref.WeakKeyDictionary()
"""By optimizer: copies that began apart from the model or their checkpoint."""


def install(_module: ModuleType) -> None:
    """Looks before the first steps."""
    early_steps.looking(Check.RESUMED, look)


def loading(module: Any) -> None:
    """Samples copies that are equal to a model which is about to load weights."""
    _made_before[:] = [one for one in _made_before if one.copy() not in (None, module)]
    if not is_called_by(*FRAMEWORKS):
        names = chosen(module)
        for copy in copies_of(module) if names else ():
            values, models = values_of(copy, names), values_of(module, names)
            if values is not None and models is not None:
                about = weakref.ref(copy), weakref.ref(module), names, values, models
                _made_before.append(Begun(*about, user_place()))
    note(module)


def look(optimizer: Any, step: int) -> None:
    """Finds the copies that begin apart before the first step, and judges those that move."""
    if step == 1:
        _begun[optimizer] = [*_unused(optimizer)] or [*_apart(optimizer)]
    for each in [*_begun.get(optimizer, ())] if step in JUDGED else ():
        copy, model = each.copy(), each.model()
        if copy is None or model is None:
            _begun[optimizer].remove(each)
            continue
        if each.last is None:
            each.last = values_of(copy, each.names)
        first, models, now = flat(each.values), flat(each.models), flat(each.last)
        if first is None or models is None or now is None:
            continue
        each.last = None
        if is_begun_apart(first, now, models):
            finding = (
                resumed.average_unused(each.key, each.names[0])
                if each.key
                else resumed.average_made_before(each.names[0])
            )
            report(finding, where=each.where)
            _begun[optimizer].remove(each)


def _apart(optimizer: Any) -> Iterator[Begun]:
    """Copies made before a load that are as they were then, while the model isn't."""
    pairs = {(id(copy), id(model)) for copy, model in beside(optimizer)}
    for each in _made_before:
        copy, model = each.copy(), each.model()
        if (id(copy), id(model)) not in pairs:
            continue
        now, own = values_of(copy, each.names), values_of(model, each.names)
        values = [flat(one) for one in (each.values, each.models, now, own)]
        if own is None or None in values:
            continue
        first, before, later, loaded_values = values
        if first == before == later != loaded_values:
            each.models = own
            yield each
    _made_before.clear()


def _unused(optimizer: Any) -> Iterator[Begun]:
    """Copies of the model that none of the checkpoint's averages was loaded into."""
    if optimizer not in loaded.continued:
        return
    entries = {key: values for key, values in loaded.averages.items() if AVERAGE.search(key)}
    if not entries:
        return
    for copy, model in beside(optimizer):
        for key, kept in entries.items():
            names = tuple(name for name in kept if name in named(model))
            values, models = values_of(copy, names), values_of(model, names)
            now, own = flat(values), flat(models)
            if not names or values is None or now is None or own is None:
                continue
            held = [value for name in names for value in kept[name]]
            if len(held) != len(now) or held in (now, own):
                continue
            saved = copied_from(held)
            about = weakref.ref(copy), weakref.ref(model), names, values, saved
            yield Begun(*about, loaded.where, key)
            break


def copied_from(values: list[float]) -> Copy:
    """Values as a copy that has arrived."""
    import torch

    return Copy(torch.tensor(values, dtype=torch.float64), None, (len(values),))
