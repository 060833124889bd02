"""Follows weights from a load of the script's to the first step, and what it leaves out."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType, ModuleType
from typing import Any

import wrapt

from ...checks import adapted
from ...checks import loaded as judged
from ...checks.finding import Check, Finding
from ...evidence.observations import observations
from ..callers import FRAMEWORKS, is_called_by, user_place
from ..loading import DTYPES
from . import dtypes, early_steps, resumed_averages, saves
from .calls import argument
from .copies import Copy, arrived, sampled
from .models import trained_by
from .reporting import is_on, report, report_here, safely
from .schedules import schedules

HOOKED = ("torch.nn.modules.module", "transformers.modeling_utils")
MATRIX = 2
"""Dimensions of a weight that is drawn at random, at least."""
KEPT = "original_module"
"""peft's name of a trained copy's original."""


@dataclass(slots=True)
class Load:
    """The last load of a module.

    Attributes:
        module: the module.
        where: the user's line.
        lost: what the load has left out, to be reported unless another load brings it.
        ids: those of the sampled weights, by name.
        values: the samples, by name.
        before: those of the weights before, if an optimizer was there.
    """

    module: weakref.ref[Any]
    where: str
    lost: Finding | None = None
    ids: dict[str, int] = field(default_factory=dict)
    values: dict[str, Copy] = field(default_factory=dict)
    before: dict[str, Copy] = field(default_factory=dict)


loaded: weakref.WeakSet[Any] = weakref.WeakSet()
"""Models that `from_pretrained` has made."""
_new: weakref.WeakKeyDictionary[Any, frozenset[int]] = weakref.WeakKeyDictionary()
"""By model: ids of the parameters that its checkpoint lacks."""
_loads: list[Load] = []
"""Loads before the first step, the last of each module."""
_stepped: list[tuple[Load, dict[str, Copy]]] = []
"""Those after which a step followed, with samples of the weights before it."""


def install(module: ModuleType) -> None:
    """Wraps the functions that load weights."""
    if module.__name__ == HOOKED[0]:
        wrapt.wrap_function_wrapper(module, "Module.load_state_dict", _loading)
        early_steps.looking(Check.SAVED, look)
    else:
        wrapt.wrap_function_wrapper(module, "PreTrainedModel.from_pretrained", _making)


def _loading(wrapped: Any, module: Any, args: Any, kwargs: Any) -> Any:
    """Shows a load to all checks that look at loaded weights."""
    states = argument(args, kwargs, 0, "state_dict")
    if is_on(Check.RESUMED):
        safely(Check.RESUMED, resumed_averages.loading, module)
    if not is_on(Check.SAVED):
        return wrapped(*args, **kwargs)
    safely(Check.SAVED, partial(saves.look_at_states, is_loaded=True), states)
    safely(Check.SAVED, _look_at_own, module, states)
    before: dict[str, Copy] = {}
    if schedules.optimizers and not observations.steps_of_all():
        safely(Check.SAVED, lambda: before.update(sampled(_matrices_in(module))))
    result = wrapped(*args, **kwargs)
    if getattr(result, "unexpected_keys", None):
        safely(Check.SAVED, _look_at_names, states, result)
    if not observations.steps_of_all():
        safely(Check.SAVED, _note, module, states, result, before)
    return result


def _look_at_own(instance: Any, states: Any) -> None:
    """Checks that a load isn't one of nothing, as if no name of a checkpoint had fitted."""
    if not isinstance(states, Mapping) or is_called_by(*FRAMEWORKS, "peft", "torch"):
        return
    is_empty = not states and next(instance.parameters(), None) is not None
    if is_empty or saves.is_loaded_into_itself(instance, states):
        report_here(judged.loads_itself(len(states)))


def _look_at_names(states: Any, result: Any) -> None:
    """Checks the loaded names against the names that didn't fit."""
    report_here(judged.loads_nothing(states, result.unexpected_keys, result.missing_keys))


def _making(wrapped: Any, _kind: Any, args: Any, kwargs: Any) -> Any:
    """Records what `from_pretrained` loads without `load_state_dict`, and what it leaves new."""
    if not is_on(Check.TRAINED, Check.SAVED):
        return wrapped(*args, **kwargs)
    result = wrapped(*args, **{**kwargs, "output_loading_info": True})
    model, info = result if isinstance(result, tuple) else (result, None)
    is_asked = bool(kwargs.get("output_loading_info"))
    if info is not None and not is_asked:
        loaded.add(model)
        if not any(map(kwargs.get, DTYPES)):
            dtypes.unasked.add(model)
        safely(Check.TRAINED, _note_missing, model, info)
    if is_on(Check.SAVED) and not observations.steps_of_all():
        safely(Check.SAVED, _note, model, None, None)
    return result if is_asked else model


def _note_missing(model: Any, info: Mapping[str, Collection[str]]) -> None:
    missing = {*info["missing_keys"]}
    if not missing:
        return
    named = dict(model.named_parameters())
    _new[model] = frozenset(id(param) for name, param in named.items() if name in missing)
    unexpected = [name for name in info["unexpected_keys"] if isinstance(name, str)]
    if unexpected and missing.issuperset(named):
        report_here(judged.fits_nothing(unexpected, named))


def untrained(models: Iterable[Any]) -> Iterator[Finding]:
    """Reports new parameters that are frozen while others are trained.

    Args:
        models: the models, without wrappers, before the first step.
    """
    for model in models:
        new = frozenset[int]().union(*(_new.get(module, ()) for module in model.modules()))
        if not new or not any(param.requires_grad for param in model.parameters()):
            continue
        names = [
            name
            for name, param in model.named_parameters()
            if id(param) in new and not param.requires_grad and KEPT not in name
        ]
        if names:
            layer = names[0].rpartition(".")[0]
            others = [name for name, _ in model.named_modules() if name != layer]
            yield adapted.new_and_frozen(names, _short(layer, others))


def _short(name: str, others: Collection[str]) -> str:
    """The shortest end of a module's name that no other has, as peft takes it."""
    parts = name.split(".")
    ends = (".".join(parts[place:]) for place in reversed(range(len(parts))))
    unique = (end for end in ends if not any(other.endswith(end) for other in others))
    return next(unique, name)


def _matrices_in(module: Any) -> list[tuple[str, Any]]:
    return [each for each in module.named_parameters() if each[1].ndim >= MATRIX]


def _note(
    module: Any, states: Any, result: Any, before: Mapping[str, Copy] = MappingProxyType({})
) -> None:
    """Records a load of the script's; it replaces what was known of the same parameters."""
    own = {id(param) for param in module.parameters()}
    for known in [*_loads]:
        other = known.module()
        if other is None or not own.isdisjoint(map(id, other.parameters())):
            _loads.remove(known)
    if result is not None and is_called_by(*FRAMEWORKS, "peft"):
        return
    load = Load(weakref.ref(module), user_place(), before=dict(before))
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
    return judged.renamed(
        missing,
        unexpected,
        sum(tensor.numel() for tensor in own.values()),
        is_all=len(unexpected) == len(states),
    )


def _sample(load: Load, module: Any, missing: frozenset[str]) -> None:
    """Begins to copy samples of the loaded matrices."""
    named = dict(_matrices_in(module))
    load.values = sampled(each for each in named.items() if each[0] not in missing)
    load.ids = {name: id(named[name]) for name in load.values}


def look(optimizer: Any, step: int) -> None:
    """Reports what the loads have left out or lost before the first step of all, or in it."""
    if step == 2:
        for each in _stepped:
            after = _sampled_again(each[0])
            early_steps.later(Check.SAVED, after.values(), partial(_compare_after, *each, after))
        _stepped.clear()
    if step != 1 or not _loads:
        return
    loads, _loads[:] = [*_loads], []
    trained = {id(param) for model in trained_by(optimizer) for param in model.parameters()}
    for load in loads:
        now = _sampled_again(load)
        if load.before:
            _stepped.append((load, now))
        module = load.module()
        if module is None or trained.isdisjoint(map(id, module.parameters())):
            continue
        report(load.lost, where=load.where)
        if not load.lost:
            early_steps.later(Check.SAVED, now.values(), partial(_compare, load, now))


def _sampled_again(load: Load) -> dict[str, Copy]:
    """The samples as they are now, of the same tensors."""
    module = load.module()
    named = () if module is None else module.named_parameters()
    return sampled((name, param) for name, param in named if load.ids.get(name) == id(param))


def _compare(load: Load, now: dict[str, Copy]) -> None:
    """Reports weights that something has drawn anew since their load."""
    report(judged.overwritten(arrived(load.values), arrived(now)), where=load.where)


def _compare_after(load: Load, then: dict[str, Copy], now: dict[str, Copy]) -> None:
    """Reports weights that are again as before the load."""
    if arrived(then) == arrived(load.values):
        before, values = arrived(load.before), arrived(load.values)
        report(judged.taken_back(before, values, arrived(now)), where=load.where)
