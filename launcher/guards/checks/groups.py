"""Inspects an optimizer's groups of parameters: which are spared weight decay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...checks import built
from ...checks.finding import Finding


def judged(
    optimizer: Any, names: Mapping[int, str], models: Iterable[Any], where: str
) -> Iterator[Finding | None]:
    """Reports groups that miss parameters which they should spare.

    Args:
        optimizer: the optimizer, before its first step.
        names: its parameters' names by id.
        models: the models that it trains, without wrappers.
        where: the user's line that made it.
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
        yield built.decays_all(kind, empty[0], fewer, where)
    if held and any(param.ndim == 1 for param in spared):
        norms = [
            names[id(weight)]
            for model, weight in _norms(models)
            if type(model).__module__.startswith("transformers.models.") and id(weight) in held
        ]
        yield built.decays_norms(kind, norms, where)


def _norms(models: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """The models' norm layers: the model, and the layer's weight."""
    for model in models:
        for layer in model.modules():
            weight = getattr(layer, "weight", None)
            if weight is not None and "Norm" in type(layer).__name__:
                yield model, weight
