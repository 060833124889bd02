"""Copies of trained models that a script keeps beside them, such as averages."""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any

from .copies import Copy, copied, sample, spread
from .models import known_models, parameters_of
from .schedules import schedules

HOOKED = ("torch.nn.modules.module",)
WRAPPED = re.compile(r"(^|(?<=\.))(module|_orig_mod)\.")
"""Parts of names that wrappers put before a parameter's."""
SAMPLED = 4
"""Parameters to sample of each."""

_copied: weakref.WeakSet[Any] = weakref.WeakSet()
"""Modules that were copied, unpickled, or have loaded a state dict."""


def install(module: ModuleType) -> None:
    """Records modules as `copy.deepcopy` and unpickling make them."""
    kind: Any = module.Module
    original = kind.__setstate__

    @functools.wraps(original)
    def __setstate__(self: Any, state: Any) -> None:  # noqa: N807
        original(self, state)
        note(self)

    kind.__setstate__ = __setstate__


def note(module: Any) -> None:
    """Records a module that may be a copy."""
    with suppress(TypeError):  # one that can't be hashed
        _copied.add(module)


def plain(name: str) -> str:
    """A parameter's name without those of wrappers."""
    return WRAPPED.sub("", name)


def beside(optimizer: Any) -> Iterator[tuple[Any, Any]]:
    """Pairs of a copy and the model that an optimizer trains, which have the same parameters."""
    if not len(_copied):
        return
    held = {id(param) for param in parameters_of(optimizer)}
    of_all = {id(param) for each in list(schedules.optimizers) for param in parameters_of(each)}
    models = [
        model
        for model in known_models()
        if any(id(param) in held for param in model.parameters())
        or any(hasattr(param, "ds_id") for param in model.parameters())
    ]
    for model in models:
        for copy in copies_of(model):
            if not any(id(param) in of_all for param in copy.parameters()):
                yield copy, model


def copies_of(model: Any) -> Iterator[Any]:
    """The outermost recorded modules that aren't the model's and have the same parameters."""
    inner = {id(part) for known in (model, *known_models()) for part in known.modules()}
    candidates = [module for module in [*_copied] if id(module) not in inner]
    inner |= {id(part) for each in candidates for part in each.modules() if part is not each}
    names = {plain(name) for name, _ in model.named_parameters()}
    own = {id(param) for param in model.parameters()}
    for each in candidates:
        if id(each) in inner:
            continue
        theirs = dict(each.named_parameters())
        is_apart = not any(id(param) in own for param in theirs.values())
        if names and is_apart and names == {plain(name) for name in theirs}:
            yield each


def named(module: Any) -> dict[str, Any]:
    """A module's parameters by their plain names."""
    return {plain(name): param for name, param in module.named_parameters()}


def chosen(model: Any) -> tuple[str, ...]:
    """Plain names of a few trained parameters of several elements."""
    names = [
        name
        for name, param in named(model).items()
        if param.requires_grad and param.numel() > 1 and sample(param) is not None
    ]
    return tuple(spread(names, SAMPLED))


def values_of(module: Any, names: tuple[str, ...]) -> Copy | None:
    """Samples of some parameters; None if one can't be sampled."""
    known = named(module)
    parts = [sample(known[name]) for name in names if name in known]
    if len(parts) < len(names) or any(part is None for part in parts):
        return None
    return copied(parts)


def flat(copy: Copy | None) -> list[float] | None:
    """The values of a copy, if it has arrived."""
    if copy is None or not copy.is_there:
        return None
    return [value for part in copy.parts() for value in part]
