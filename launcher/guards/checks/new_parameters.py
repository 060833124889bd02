"""Finds parameters that a checkpoint lacks and nothing trains, and checkpoints that fit nothing."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import wrapt

from ...checks import built, saved
from ...checks.finding import Check, Finding
from ..unloaded_model import DTYPES
from . import dtypes
from .reporting import is_on, report_here, safely

HOOKED = ("transformers.modeling_utils",)
KEPT = "original_module"
"""peft's name of a trained copy's original."""

_new: weakref.WeakKeyDictionary[Any, frozenset[int]] = weakref.WeakKeyDictionary()
"""By model: ids of the parameters that its checkpoint lacks."""


def install(module: ModuleType) -> None:
    """Wraps the loading of a model's weights, which reports the names that it misses."""

    def load(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        if kwargs.get("output_loading_info") or not is_on(Check.TRAINED, Check.SAVED):
            return wrapped(*args, **kwargs)
        result = wrapped(*args, **{**kwargs, "output_loading_info": True})
        if not isinstance(result, tuple):
            return result
        model, info = result
        if not any(map(kwargs.get, DTYPES)):
            dtypes.unasked.add(model)
        safely(Check.TRAINED, _note, model, info)
        return model

    wrapt.wrap_function_wrapper(module.PreTrainedModel, "from_pretrained", load)


def _note(model: Any, info: Mapping[str, Collection[str]]) -> None:
    missing = {*info["missing_keys"]}
    if not missing:
        return
    named = dict(model.named_parameters())
    _new[model] = frozenset(id(param) for name, param in named.items() if name in missing)
    unexpected = [name for name in info["unexpected_keys"] if isinstance(name, str)]
    if unexpected and missing.issuperset(named):
        report_here(saved.fits_nothing(unexpected, named))


def untrained(models: Iterable[Any], where: str) -> Iterator[Finding]:
    """Reports new parameters that are frozen while others are trained.

    Args:
        models: the models, without wrappers.
        where: the user's line that made the optimizer.
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
            yield built.new_and_frozen(names, _short(layer, others), where)


def _short(name: str, others: Collection[str]) -> str:
    """The shortest end of a module's name that no other has, as peft takes it."""
    parts = name.split(".")
    ends = (".".join(parts[place:]) for place in reversed(range(len(parts))))
    unique = (end for end in ends if not any(other.endswith(end) for other in others))
    return next(unique, name)
