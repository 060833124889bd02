"""Finds copies of the trained model beside it, and follows them as averages in its first steps."""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

from ...checks import averages
from ...checks.finding import Check
from . import early_steps
from .calls import first_passes
from .copies import Copy, copied, sample, spread
from .models import held_by, known_models, trained_by
from .reporting import report, report_here
from .schedules import schedules

HOOKED = ("torch.nn.modules.module",)
WRAPPED = re.compile(r"(^|(?<=\.))(module|_orig_mod)\.")
"""Parts of names that wrappers put before a parameter's."""
SAMPLED = 4
"""Parameters to sample of each."""
LOOKS = 5
"""Forward passes of a copy to look at."""
ELEMENTS, TENSORS, NORMS = 2048, 8, 4
"""Elements of a parameter, parameters and norm layers to compare."""
COMPARED = 9
"""Step before which halves are compared; what they have lost is reported of the next."""


@dataclass(slots=True)
class Followed:
    """A copy and its model, as they were before the first step.

    Attributes:
        copy: the copy.
        model: the trained model.
        where: the user's line that made the optimizer.
        norms: names of batch norms with statistics.
        first: samples of the copy's weights and statistics, until a finding.
        halves: elements of the copy's and the model's parameters, if the copy is in half precision.
        waiting: samples of a pass, of the copy and of the model's statistics.
    """

    copy: weakref.ref[Any]
    model: weakref.ref[Any]
    where: str
    norms: tuple[str, ...]
    first: Copy | None
    halves: dict[str, tuple[Any, Any]]
    waiting: list[Copy] = field(default_factory=list)


_copied: weakref.WeakSet[Any] = weakref.WeakSet()
"""Modules that were copied, unpickled, or have loaded a state dict."""
_followed: weakref.WeakKeyDictionary[Any, list[Followed]] = weakref.WeakKeyDictionary()
"""By optimizer."""


def install(module: ModuleType) -> None:
    """Records modules as `copy.deepcopy` and unpickling make them, and looks before first steps."""
    kind: Any = module.Module
    original = kind.__setstate__

    @functools.wraps(original)
    def __setstate__(self: Any, state: Any) -> None:  # noqa: N807
        original(self, state)
        note(self)

    kind.__setstate__ = __setstate__
    early_steps.looking(Check.TRAINED, look)


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
    trained = {*map(id, trained_by(optimizer))}
    of_all = held_by(*schedules.optimizers)
    models = [
        model
        for model in known_models()
        if id(model) in trained or any(hasattr(param, "ds_id") for param in model.parameters())
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


def look(optimizer: Any, step: int) -> None:
    """Begins to follow copies before the first step, and judges those in half precision."""
    if step == 1:
        _followed[optimizer] = list(_begun(optimizer))
    for each in _followed.get(optimizer, ()) if step == COMPARED else ():
        copy, model = each.copy(), each.model()
        if copy is None or model is None or not each.halves:
            continue
        counted = _counted(each.halves, named(copy), named(model))
        if counted is not None:
            dtype = next(str(first.dtype) for first, _ in each.halves.values())
            about = dtype.removeprefix("torch."), counted, each.where, step + 1
            early_steps.later(Check.TRAINED, [counted], partial(_judge_halves, *about))
        each.halves.clear()


def _judge_halves(dtype: str, counted: Copy, where: str, step: int) -> None:
    ((followed, changed),) = counted.parts()
    report(averages.lost_in_half(dtype, int(followed), int(changed)), where=where, step=step)


def _begun(optimizer: Any) -> Iterator[Followed]:
    where = schedules.optimizers[optimizer].where
    for copy, model in beside(optimizer):
        theirs, own = named(copy), named(model)
        empty = [
            name
            for name, param in theirs.items()
            if not param.numel() and getattr(own[name], "ds_numel", own[name].numel())
        ]
        report(averages.empty_copy(empty, len(theirs)), where=where, step=1)
        norms = tuple(spread([*_norms_of(copy)], NORMS))
        halves = _halves(theirs, own)
        first = _state(copy, norms)
        if empty or not (halves or (norms and first is not None)):
            continue
        each = Followed(weakref.ref(copy), weakref.ref(model), where, norms, first, halves)
        if norms and first is not None:
            look_at = partial(_look_at_pass, each)
            first_passes(copy, Check.TRAINED, look_at, LOOKS, when=_without_gradients)
        yield each


def _halves(theirs: dict[str, Any], own: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Elements of the copy's parameters in half precision, and of the model's."""
    import torch

    halves = torch.bfloat16, torch.float16
    names = [
        name
        for name, param in theirs.items()
        if param.dtype in halves and own[name].requires_grad and own[name].shape == param.shape
        if sample(param) is not None and sample(own[name]) is not None
    ]
    pairs = ((name, theirs[name], own[name]) for name in spread(names, TENSORS))
    return {name: (_part(one).clone(), _part(other).clone()) for name, one, other in pairs}


def _part(param: Any) -> Any:
    return param.detach().view(-1)[:ELEMENTS]


def _counted(
    halves: dict[str, tuple[Any, Any]], theirs: dict[str, Any], own: dict[str, Any]
) -> Copy | None:
    """Begins to copy how many elements the copy has changed, of those the training has."""
    import torch

    both, trained = [], []
    for name, (one, other) in halves.items():
        if theirs[name].shape != own[name].shape or theirs[name].dtype is not one.dtype:
            return None
        is_trained = _part(own[name]) != other
        both.append((is_trained & (_part(theirs[name]) != one)).sum())
        trained.append(is_trained.sum())
    return copied([torch.stack([torch.stack(both).sum(), torch.stack(trained).sum()])])


def _norms_of(model: Any) -> Iterator[str]:
    """Names of batch norms with running statistics."""
    from torch import nn

    kinds = nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm
    for name, layer in model.named_modules():
        if isinstance(layer, kinds) and layer.running_mean is not None and name:
            yield name


def _state(model: Any, norms: tuple[str, ...]) -> Copy | None:
    """Begins to copy samples of weights, and of the running means and variances."""
    weights = [param for param in model.parameters() if sample(param) is not None]
    parts = [*map(sample, spread(weights, NORMS)), *_statistics(model, norms)]
    return None if not parts or any(part is None for part in parts) else copied(parts)


def _statistics(model: Any, norms: tuple[str, ...]) -> list[Any]:
    layers = [model.get_submodule(name) for name in norms]
    return [sample(one) for layer in layers for one in (layer.running_mean, layer.running_var)]


def _without_gradients(_copy: Any) -> bool:
    import torch

    return not torch.is_grad_enabled()


def _look_at_pass(each: Followed, copy: Any, *_given: Any) -> None:
    """Compares a copy's weights and statistics in evaluation with those before the first step."""
    model = each.model()
    if copy.training or model is None or each.first is None:
        return
    _judge(each)
    if not each.waiting and {*_norms_of(model)}.issuperset(each.norms):
        layers = [part for part in _statistics(model, each.norms) if part is not None]
        now, trained = _state(copy, each.norms), copied(layers)
        if now is not None and trained is not None:
            each.waiting = [now, trained]
            _judge(each)


def _judge(each: Followed) -> None:
    """Judges a pass once its samples have arrived."""
    first, waiting = each.first, each.waiting
    if first is None or not waiting or not all(one.is_there for one in (first, *waiting)):
        return
    now, trained = waiting
    each.waiting = []
    count = 2 * len(each.norms)
    begun, later, moved = first.parts(), now.parts(), trained.parts()
    if len(begun) != len(later) or len(moved) != count:
        return
    is_followed = begun[:-count] != later[:-count]
    stayed = [
        place
        for place in range(0, count, 2)
        if begun[place - count] == later[place - count] != moved[place]
    ]
    if not is_followed or 2 * len(stayed) <= len(each.norms):
        return
    is_new = all(
        not any(begun[place - count]) and {*begun[place - count + 1]} == {1.0} for place in stayed
    )
    each.first = None  # one finding is enough
    layers = [each.norms[place // 2] for place in stayed]
    report_here(averages.stale_statistics(layers, is_new=is_new))
