"""Inspects what the first training passes give to transformers' models."""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import wrapt

from ...checks.finding import Check
from ...core.private_names import LOADER_ITERATOR
from .models import known_models
from .passed_inputs import Inputs
from .passed_losses import Guesses
from .passed_texts import Texts
from .reporting import is_on, safely

HOOKED = (LOADER_ITERATOR.module,)
MODELS = "transformers.modeling_utils"
PASSES = 10
"""Maximum passes to inspect."""
BEGUN = 8
"""Beginnings of loaders at which models are looked for."""
DEPTH = 3
"""Levels of modules in which a transformers model may be."""
Look = Callable[[Any, Mapping[str, Any]], None]


class Passes:
    """The first training passes of this process's transformers models."""

    def __init__(self) -> None:
        self._left = BEGUN
        self._watched: weakref.WeakSet[Any] = weakref.WeakSet()

    def begin(self, wrapped: Any, _loader: Any, args: Any, kwargs: Any) -> Any:
        """Begins a loader's iterator."""
        if self._left and is_on(Check.DATA, Check.TRAINED):
            safely(Check.DATA, self._find)
        return wrapped(*args, **kwargs)

    def _find(self) -> None:
        """Hooks the models that are there so far."""
        package = sys.modules.get(MODELS)
        kind = getattr(package, "PreTrainedModel", None)
        if kind is None:
            return
        models = [part for model in known_models() for part in _within(model, kind, DEPTH)]
        self._left -= bool(models)
        for model in models:
            if model not in self._watched:
                self._watched.add(model)
                watch(model)


def _within(module: Any, kind: type, depth: int) -> Iterator[Any]:
    """The outermost transformers models in a module."""
    if isinstance(module, kind) or hasattr(module, "get_base_model"):
        yield module
    elif depth:
        for child in module.children():
            yield from _within(child, kind, depth - 1)


def watch(model: Any) -> None:
    """Inspects a model's first training passes, then removes the hook."""
    import torch

    looks: list[Look] = [Texts(), Inputs()]
    guesses = Guesses()
    left = PASSES
    names: list[str] = []

    def see(model: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        nonlocal left
        if not left or torch.compiler.is_compiling():
            return
        if not model.training or not torch.is_grad_enabled():
            return
        left -= 1
        if not names:
            names.extend(inspect.signature(model.forward).parameters)
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        for look in looks:
            safely(Check.DATA, look, model, given)
        if not left:
            handle.remove()

    def note(model: Any, _args: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or not model.training or not torch.is_grad_enabled():
            return
        if guesses.is_open:
            safely(Check.DATA, guesses.look, model, output)
        if not guesses.is_open:
            after.remove()

    handle = model.register_forward_pre_hook(see, with_kwargs=True)
    after = model.register_forward_hook(note)


passes = Passes()


def install(module: ModuleType) -> None:
    """Looks for models whenever a loader begins."""
    wrapt.wrap_function_wrapper(module, "DataLoader.__iter__", passes.begin)
