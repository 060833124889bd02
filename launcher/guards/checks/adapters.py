"""Finds peft adapters that are frozen while other parameters are trained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...checks import built
from ...checks.finding import Finding


def frozen(models: Iterable[Any], where: str) -> Iterator[Finding]:
    """Reports models that train something, but nothing of their adapters.

    Args:
        models: the models, without wrappers.
        where: the user's line that made the optimizer.
    """
    for model in models:
        if not any(each.requires_grad for each in model.parameters()):
            continue
        parts = [
            (f"{name}.{attribute}", each)
            for name, layer in model.named_modules()
            for attribute in getattr(layer, "adapter_layer_names", ())
            for each in _parameters_of(getattr(layer, attribute, None))
        ]
        if parts and not any(each.requires_grad for _, each in parts):
            yield built.frozen_adapter([*dict(parts)], where)


def _parameters_of(part: Any) -> Iterator[Any]:
    """The parameters of a part of a layer, e.g. of `lora_A`."""
    if hasattr(part, "parameters"):
        yield from part.parameters()
