"""Applies the preset's DistributedDataParallel flags, and observes its models."""

from __future__ import annotations

import inspect
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any

import wrapt

from ..core.choices import Engine
from ..core.private_names import COMPILED, IGNORED, SYNCS
from ..core.settings import OF_DDP, Fact, Setting, Value
from ..evidence.observations import observations
from ..evidence.worker_messages import Boundary
from . import settling
from .model_facts import facts_of, see_facts
from .settling import overrides

HOOKED = ("torch.nn.parallel.distributed", COMPILED.module)

wrapped: weakref.WeakSet[Any] = weakref.WeakSet()
"""Live instances of DistributedDataParallel."""
others: weakref.WeakSet[Any] = weakref.WeakSet()
"""Other data-parallel models: DeepSpeed engines and FSDP modules."""


_compiled: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = weakref.WeakKeyDictionary()
"""By model: torch.compile's module around it."""


def install(module: ModuleType) -> None:
    """Wraps the constructor of DistributedDataParallel, or of torch.compile's modules."""
    if module.__name__ == COMPILED.module:
        with observations.going_on():
            COMPILED.of(module)
            wrapt.wrap_function_wrapper(module, f"{COMPILED.path}.__init__", _compile)
        return
    signature = inspect.signature(module.DistributedDataParallel.__init__)

    def construct(original: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        call = signature.bind(instance, *args, **kwargs)
        call.apply_defaults()
        model = call.arguments["module"]
        if observations.is_first(model):
            changeable = (*OF_DDP, Setting.GRADIENT_CHECKPOINTING)
            facts = {**_in_force(call), **facts_of(model)}
            answer = settling.answer_at(Boundary.DATA_PARALLEL, changeable, facts, model=model)
            settings = settling.settings_of(answer)
        else:
            settings = overrides()
        for setting, value in settings.items():
            if setting in OF_DDP:
                call.arguments[setting.value] = value
        observations.see(**_in_force(call))
        see_facts(model)
        observations.see_model(model)
        original(*call.args[1:], **call.kwargs)
        wrapped.add(instance)

    wrapt.wrap_function_wrapper(module, "DistributedDataParallel.__init__", construct)


def _in_force(call: inspect.BoundArguments) -> dict[str, Value | None]:
    """The engine and its flags in force."""
    flags = {flag.value: bool(call.arguments[flag.value]) for flag in OF_DDP}
    return {Fact.ENGINE.value: Engine.DDP.value, **flags}


def world() -> int:
    """The number of ranks."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def divides(model: Any, ranks: Callable[[], int]) -> None:
    """Notes an engine or a sharded module if it is data-parallel over all ranks."""
    with suppress(Exception):  # as another version has it
        if ranks() == world():
            others.add(model)


def _compile(original: Any, instance: Any, args: Any, kwargs: Any) -> None:
    original(*args, **kwargs)
    model = args[0] if args else kwargs.get("mod")
    with suppress(TypeError):  # one that can't be hashed
        _compiled[model] = weakref.ref(instance)


def called(model: Any) -> Any:
    """What a script calls for a model: hooks within torch.compile's module are compiled."""
    wrappers = [each for each in wrapped if getattr(each, "module", None) is model]
    for inner in (*wrappers, model):
        reference = _compiled.get(inner)
        outer = None if reference is None else reference()
        if outer is not None:
            return outer
    return model


def inner(model: Any) -> Any:
    """The model within torch.compile's module, which has a mode of its own up to torch 2.3."""
    held = list(_compiled.items())
    return next((within for within, outer in held if outer() is model), model)


def dividing() -> Iterator[Any]:
    """Models whose samples must be divided among all ranks, as the script calls them."""
    ranks = world()
    if ranks > 1:
        yield from map(called, others)
        yield from (called(model) for model in wrapped if model.process_group.size() == ranks)


def outermost() -> list[Any]:
    """Those models without the parts of them that FSDP divides by themselves."""
    models = list(dividing())
    parts = {id(part) for model in models for part in model.modules() if part is not model}
    return [model for model in models if id(model) not in parts]


def reduced() -> set[int]:
    """Ids of the parameters whose gradients the current backward pass reduces across ranks.

    Raises:
        MissingNameError: this torch lacks the names.
    """
    return _replicated_by(
        model for model in wrapped if SYNCS.of(model) and model.process_group.size() > 1
    )


def replicated() -> set[int]:
    """Ids of the parameters that DDP replicates on all ranks."""
    return _replicated_by(model for model in wrapped if model.process_group.size() == world() > 1)


def _replicated_by(models: Iterable[Any]) -> set[int]:
    return {
        id(parameter)
        for model in models
        for name, parameter in model.module.named_parameters()
        if parameter.requires_grad and name not in IGNORED.of(model)
    }
