"""Follows weights from a load of the script's to the first step."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import wrapt

from ...checks import pretrained
from ...checks.finding import Check, Finding
from ...evidence.observations import observations
from ..callers import FRAMEWORKS, is_called_by, user_place
from . import early_steps
from .copies import Copy, copied, sample, spread
from .models import known_models, parameters_of
from .reporting import is_on, report, safely

HOOKED = ("torch.nn.modules.module", "transformers.modeling_utils")
MATRIX = 2
"""Dimensions of a weight that is drawn at random, at least."""


@dataclass(slots=True)
class Load:
    """The last load of a module.

    Attributes:
        module: the module.
        where: the user's line.
        lost: what the load has left out, to be reported unless another load brings it.
        names: the sampled weights.
        ids: those of the sampled weights.
        values: their values.
    """

    module: weakref.ref[Any]
    where: str
    lost: Finding | None = None
    names: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()
    values: list[Copy] = field(default_factory=list)


_loads: list[Load] = []
"""Loads before the first step, the last of each module."""
_read: list[tuple[Load, dict[str, Copy]]] = []
"""Loads, and the weights before the first step."""


def install(module: ModuleType) -> None:
    """Wraps the functions that load weights."""
    if module.__name__ != HOOKED[0]:
        wrapt.wrap_function_wrapper(module.PreTrainedModel, "from_pretrained", _loaded)
        return
    kind: Any = module.Module
    original = kind.load_state_dict

    @functools.wraps(original)
    def load_state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if is_on(Check.SAVED) and not observations.steps_of_all():
            states = args[0] if args else kwargs.get("state_dict")
            safely(Check.SAVED, _note, self, states, result)
        return result

    kind.load_state_dict = load_state_dict
    early_steps.looking(Check.SAVED, look)


def _loaded(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
    """Records what `from_pretrained` loads without `load_state_dict`."""
    result = wrapped(*args, **kwargs)
    if is_on(Check.SAVED) and not observations.steps_of_all():
        model = result[0] if isinstance(result, tuple) else result
        safely(Check.SAVED, _note, model, None, None)
    return result


def _note(module: Any, states: Any, result: Any) -> None:
    """Records a load of the script's; it replaces what was known of the same parameters."""
    own = {id(param) for param in module.parameters()}
    for known in [*_loads]:
        other = known.module()
        if other is None or not own.isdisjoint(map(id, other.parameters())):
            _loads.remove(known)
    if result is not None and is_called_by(*FRAMEWORKS, "peft"):
        return
    load = Load(weakref.ref(module), user_place())
    if getattr(result, "missing_keys", None) and getattr(result, "unexpected_keys", None):
        load.lost = _lost(module, states, result)
    _sample(load, module, frozenset(getattr(result, "missing_keys", ())))
    _loads.append(load)


def _lost(module: Any, states: Mapping[str, Any], result: Any) -> Finding | None:
    """What a load has left out."""
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    missing = {name: tuple(own[name].shape) for name in result.missing_keys if name in own}
    unexpected = {
        name: tuple(states[name].shape)
        for name in result.unexpected_keys
        if hasattr(states.get(name), "shape")
    }
    return pretrained.renamed(
        missing,
        unexpected,
        sum(tensor.numel() for tensor in own.values()),
        is_all=len(unexpected) == len(states),
    )


def _sample(load: Load, module: Any, missing: frozenset[str]) -> None:
    """Begins to copy samples of the loaded matrices."""
    matrices = [
        (name, param)
        for name, param in module.named_parameters()
        if name not in missing and param.ndim >= MATRIX and sample(param) is not None
    ]
    held = [(name, param, copied([sample(param)])) for name, param in spread(matrices)]
    found = [(name, id(param), copy) for name, param, copy in held if copy is not None]
    load.names = tuple(name for name, _, _ in found)
    load.ids = tuple(key for _, key, _ in found)
    load.values = [copy for _, _, copy in found]


def look(optimizer: Any, step: int) -> None:
    """Reports what the loads have left out or lost, before the first step of all."""
    if step == 1 and _loads:
        loads, _loads[:] = [*_loads], []
        held = {id(param) for param in parameters_of(optimizer)}
        trained = {
            id(param)
            for model in known_models()
            if any(id(param) in held for param in model.parameters())
            for param in model.parameters()
        }
        for load in loads:
            module = load.module()
            if module is None or trained.isdisjoint(map(id, module.parameters())):
                continue
            report(load.lost, where=load.where)
            if not load.lost:
                _read.append((load, _now(load, module)))
    while _read and all(copy.is_there for copy in _read[0][1].values()):
        load, now = _read.pop(0)
        known = zip(load.names, load.values, strict=True)
        before = {name: copy.parts()[0] for name, copy in known if copy.is_there}
        after = {name: copy.parts()[0] for name, copy in now.items()}
        report(pretrained.overwritten(before, after), where=load.where)


def _now(load: Load, module: Any) -> dict[str, Copy]:
    """Begins to copy samples of the same tensors before the first step."""
    held = dict(module.named_parameters())
    values = {}
    for name, key in zip(load.names, load.ids, strict=True):
        part = sample(held[name]) if id(held.get(name)) == key else None
        if part is not None and (copy := copied([part])) is not None:
            values[name] = copy
    return values
