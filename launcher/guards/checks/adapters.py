"""Finds peft adapters that are frozen while others train, or replaced by new ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import wrapt

from ...checks import built
from ...checks.finding import Check, Finding
from .reporting import is_on, report_here, safely

HOOKED = ("peft.peft_model",)
SECOND = ".lora_B."
"""Part of the names of weights that are zero in a new adapter."""


def install(module: ModuleType) -> None:
    """Wraps the making of adapted models."""

    def made(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
        model = args[0] if args else kwargs.get("model")
        held: dict[str, Any] = {}
        if isinstance(model, module.PeftModel) and is_on(Check.TRAINED):
            safely(Check.TRAINED, lambda: held.update(_weights_of(model)))
        wrapped(*args, **kwargs)
        if held:
            safely(Check.TRAINED, _judge, held, instance)

    wrapt.wrap_function_wrapper(module, "PeftModel.__init__", made)


def _weights_of(model: Any) -> Iterator[tuple[str, Any]]:
    """Weights of adapters that a training or a checkpoint has changed."""
    for name, param in model.named_parameters():
        if SECOND in name and not param.is_meta and bool(param.detach().any()):
            yield name, param


def _judge(held: dict[str, Any], model: Any) -> None:
    """Reports weights that the model has no more."""
    left = {id(param) for param in model.parameters()}
    lost = [name for name, weight in held.items() if id(weight) not in left]
    report_here(built.replaced_adapter(lost))


def frozen(models: Iterable[Any], where: str) -> Iterator[Finding]:
    """Reports models that train something, but nothing of their adapters.

    Args:
        models: the models, without wrappers.
        where: the user's line that made the optimizer.
    """
    for model in models:
        if not any(param.requires_grad for param in model.parameters()):
            continue
        parts = [
            (f"{name}.{attribute}", param)
            for name, layer in model.named_modules()
            for attribute in getattr(layer, "adapter_layer_names", ())
            for param in getattr(getattr(layer, attribute, None), "parameters", tuple)()
        ]
        if parts and not any(param.requires_grad for _, param in parts):
            yield built.frozen_adapter([*dict(parts)], where)
