"""Compares what an optimizer holds with the models: replaced, parted, unregistered, decayed."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ...checks import built
from ...checks.finding import Check, Finding
from ..callers import user_place
from ..fsdp import TORCHS
from ..model_facts import base_of
from . import early_steps
from .calls import argument
from .copies import Copy, copied, local, sample
from .models import parameters_of
from .reporting import report

HOOKED = (TORCHS,)

reported: weakref.WeakSet[Any] = weakref.WeakSet()
"""Reported optimizers, which hold only replaced parameters."""
_sound: weakref.WeakSet[Any] = weakref.WeakSet()
"""Optimizers that need no further look."""
_replaced: dict[int, tuple[weakref.ref[Any], str]] = {}
"""By id: parameters that `fully_shard` replaced while they are referenced elsewhere, and where."""


def install(module: ModuleType) -> None:
    """Wraps `fully_shard`, and looks before each optimizer's first steps."""
    if hasattr(module, "fully_shard"):  # from torch 2.6 on
        wrapt.wrap_function_wrapper(module, "fully_shard", _sharding)
        early_steps.looking(Check.TRAINED, look)


def _sharding(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
    """Notes the parameters that `fully_shard` replaces."""
    given = argument(args, kwargs, 0, "module")
    modules = given if isinstance(given, list | tuple) else [given]
    before: list[Any] = []
    with suppress(AttributeError):  # not a module: torch raises
        before += _parameters_in(modules)
    result = wrapped(*args, **kwargs)
    after = {id(parameter) for parameter in _parameters_in(modules)}
    gone = [parameter for parameter in before if id(parameter) not in after]
    where = user_place() if gone else ""
    _replaced.update((id(parameter), (weakref.ref(parameter), where)) for parameter in gone)
    return result


def _parameters_in(modules: Any) -> Iterator[Any]:
    for module in modules:
        yield from module.parameters()


def look(optimizer: Any, _step: int) -> None:
    """Reports an optimizer that holds only replaced parameters, without gradients."""
    if not _replaced or optimizer in _sound:
        return
    trained = [param for param in parameters_of(optimizer) if param.requires_grad]
    is_replaced = bool(trained) and all(
        id(param) in _replaced and _replaced[id(param)][0]() is param for param in trained
    )
    if is_replaced and any(param.grad is not None for param in trained):
        return
    _sound.add(optimizer)
    if is_replaced:
        reported.add(optimizer)
        _, first = next(iter(_replaced.values()))
        report(built.made_before_sharding(type(optimizer).__name__, len(trained)), where=first)


def look_at_apart(models: Iterable[Any], where: str) -> None:
    """Looks at untied weights of transformers models; skips intended and untrained ones."""
    for model in models:
        base = base_of(model)
        if not hasattr(base, "get_output_embeddings"):
            continue
        config = base.config
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        output: Any = getattr(base.get_output_embeddings(), "weight", None)
        embedding: Any = getattr(base.get_input_embeddings(), "weight", None)
        if not getattr(text, "tie_word_embeddings", False) or output is embedding:
            continue
        parts = sample(_part(output)), sample(_part(embedding))
        if any(part is None for part in parts) or _shape(output) != _shape(embedding):
            continue
        copy = copied(parts) if output.requires_grad or embedding.requires_grad else None
        if copy is not None:
            known = {id(param): name for name, param in model.named_parameters()}
            names = (
                known.get(id(output), "the output layer"),
                known.get(id(embedding), "the embedding"),
            )
            early_steps.later(Check.TRAINED, [copy], partial(_judge_apart, names, copy, where))


def _judge_apart(names: tuple[str, str], copy: Copy, where: str) -> None:
    """Reports two weights that were tied; equal values show that they still should be."""
    output, embedding = copy.parts()
    if output == embedding and any(output):
        report(built.parted(*names), where=where)


def _part(weight: Any) -> Any:
    """This rank's part of a weight, without its graph."""
    return None if weight is None else local(weight.detach() if weight.numel() else weight)


def _shape(weight: Any) -> tuple[int, ...]:
    return tuple(getattr(weight, "ds_shape", weight.shape))


def unregistered(models: Iterable[Any], held: Collection[int]) -> Iterator[str]:
    """Names of what plain lists, dicts and attributes of a model hold, if it has gradients.

    Args:
        models: the models, without wrappers.
        held: ids of the optimizers' parameters.
    """
    import torch

    of_torch = vars(torch.nn.Module())
    for model in models:
        registered = {id(part) for part in model.modules()} | {id(p) for p in model.parameters()}
        for prefix, module in model.named_modules():
            for name, value in list(vars(module).items()):
                for place, part in _parts(value) if name not in of_torch else ():
                    if id(part) not in registered and _has_unused_gradient(part, held):
                        yield f"{prefix}.{name}{place}".lstrip(".")


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """An attribute's value, or the members of a list or dict, with their places."""
    match value:
        case list() | tuple():
            yield from ((f"[{place}]", part) for place, part in enumerate(value))
        case dict():
            yield from ((f"[{key!r}]", part) for key, part in list(value.items()))
        case _:
            yield "", value


def _has_unused_gradient(part: Any, held: Collection[int]) -> bool:
    """Whether a layer or tensor has a gradient that no optimizer uses."""
    import torch

    if isinstance(part, torch.nn.Module):
        tensors = list(part.parameters())
    else:
        tensors = [part] if isinstance(part, torch.Tensor) and part.is_leaf else []
    return any(
        tensor.requires_grad and tensor.grad is not None and id(tensor) not in held
        for tensor in tensors
    )


def decayed(
    optimizer: Any, names: Mapping[int, str], models: Iterable[Any]
) -> Iterator[Finding | None]:
    """Reports groups that miss parameters which they should spare.

    Args:
        optimizer: the optimizer, before its first step.
        names: its parameters' names by id.
        models: the models that it trains, without wrappers.
    """
    kind, groups = type(optimizer).__name__, optimizer.param_groups
    empty = [
        number
        for number, group in enumerate(groups)
        if not group["params"] and not group.get("weight_decay", 1)
    ]
    decayed = [param for group in groups if group.get("weight_decay") for param in group["params"]]
    spared = [
        param for group in groups if not group.get("weight_decay") for param in group["params"]
    ]
    held = {id(param) for param in decayed}
    if empty:
        biases = [id(param) for param in decayed if names[id(param)].endswith(".bias")]
        vectors = {*biases, *(id(weight) for _, weight in _norms(models))} & held
        fewer = [names[id(param)] for param in decayed if id(param) in vectors and param.ndim == 1]
        yield built.decays_all(kind, empty[0], fewer)
    if held and any(param.ndim == 1 for param in spared):
        norms = [
            names[id(weight)]
            for model, weight in _norms(models)
            if type(model).__module__.startswith("transformers.models.") and id(weight) in held
        ]
        yield built.decays_norms(kind, norms)


def _norms(models: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """The models' norm layers: the model, and the layer's weight."""
    for model in models:
        for layer in model.modules():
            weight = getattr(layer, "weight", None)
            if weight is not None and "Norm" in type(layer).__name__:
                yield model, weight
