"""The known models, and the names of an optimizer's parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...evidence.observations import observations
from .. import data_parallel


def parameters_of(optimizer: Any) -> Iterator[Any]:
    """The tensors that an optimizer holds."""
    for group in optimizer.param_groups:
        yield from group["params"]


def held_by(*optimizers: Any) -> set[int]:
    """Ids of the tensors that optimizers hold."""
    return {id(param) for optimizer in optimizers for param in parameters_of(optimizer)}


def known_models() -> list[Any]:
    """The known models without their wrappers."""
    seen = [getattr(model, "module", model) for model in data_parallel.wrapped]
    seen += observations.models()
    return list({id(model): model for model in seen}.values())


def trained_by(optimizer: Any) -> Iterator[Any]:
    """The known models with any parameter of an optimizer."""
    held = held_by(optimizer)
    for model in known_models():
        if any(id(param) in held for param in model.parameters()):
            yield model


def parameters_in(models: Iterable[Any]) -> Iterator[tuple[Any, str, Any]]:
    """Each model's parameters with their names."""
    for model in models:
        for name, parameter in model.named_parameters():
            yield model, name, parameter


def names_of(optimizer: Any) -> dict[int, str]:
    """The names of an optimizer's tensors, by id; those of no model by their place."""
    known = {id(param): name for _, name, param in parameters_in(known_models())}
    return {
        id(param): known.get(id(param)) or f"tensor {place} of group {number} {tuple(param.shape)}"
        for number, group in enumerate(optimizer.param_groups)
        for place, param in enumerate(group["params"])
    }


def is_compiled(model: Any) -> bool:
    """Whether a part of a model is compiled: it depends on what it had, and may ignore hooks."""
    return any(
        type(part).__name__ == "OptimizedModule" or vars(part).get("_compiled_call_impl")
        for part in model.modules()
    )
