"""Finds peft adapters that are frozen while others train, or new though one was to be loaded."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import wrapt

from ...checks import built
from ...checks.finding import Check, Finding
from .reporting import is_on, report_here, safely

CONFIG = "peft.config"
HOOKED = ("peft.peft_model", CONFIG)
SECOND = ".lora_B."
"""Part of the names of weights that are zero in a new adapter."""
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
"""The files of an adapter's weights beside its configuration."""

_read: list[tuple[weakref.ref[Any], str]] = []
"""Configurations read from a folder that has weights, which weren't loaded, and the folder."""


def install(module: ModuleType) -> None:
    """Wraps the reading of configurations and the making of adapted models."""
    if module.__name__ == CONFIG:
        wrapt.wrap_function_wrapper(module, "PeftConfigMixin.from_pretrained", _reading)
        return

    def made(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
        model = args[0] if args else kwargs.get("model")
        held: dict[str, Any] = {}
        if isinstance(model, module.PeftModel) and is_on(Check.TRAINED):
            safely(Check.TRAINED, lambda: held.update(_weights_of(model)))
        wrapped(*args, **kwargs)
        if held:
            safely(Check.TRAINED, _judge, held, instance)

    def loading(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        folder = str(args[0] if args else kwargs.get("model_id"))
        result = wrapped(*args, **kwargs)  # which may read the configuration again
        _read[:] = [known for known in _read if known[1] != folder]
        return result

    wrapt.wrap_function_wrapper(module, "PeftModel.__init__", made)
    wrapt.wrap_function_wrapper(module, "PeftModel.load_adapter", loading)


def _reading(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
    config = wrapped(*args, **kwargs)
    if is_on(Check.TRAINED):
        folder = args[0] if args else kwargs.get("pretrained_model_name_or_path")
        safely(Check.TRAINED, _note, config, str(folder))
    return config


def _note(config: Any, folder: str) -> None:
    """Records a configuration that has weights beside it."""
    if any(Path(folder, name).is_file() for name in WEIGHTS):
        _read.append((weakref.ref(config), folder))


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


def unloaded(models: Iterable[Any], where: str) -> Iterator[Finding]:
    """Reports new adapters whose configuration was read beside trained weights.

    Args:
        models: the models, without wrappers, before the first step.
        where: the user's line that made the optimizer.
    """
    folders = {id(config): folder for known, folder in _read if (config := known()) is not None}
    for model in models:
        for adapter, config in getattr(model, "peft_config", {}).items():
            seconds = [
                (name, param)
                for name, param in model.named_parameters()
                if f"{SECOND}{adapter}." in name and param.requires_grad and param.numel()
            ]
            is_read = not any(param.is_meta or hasattr(param, "to_local") for _, param in seconds)
            is_known = id(config) in folders and is_read
            if is_known and seconds and not any(bool(param.detach().any()) for _, param in seconds):
                yield built.unloaded_adapter(seconds[0][0], folders[id(config)], where)
