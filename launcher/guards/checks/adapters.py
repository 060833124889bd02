"""Inspects adapters of peft's: what new ones name, frozen and unloaded ones, and merges."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import wrapt

from ...checks import adapted
from ...checks.finding import Check, Finding
from .calls import after, argument, before
from .reporting import is_on, report_here, safely

MAKING, CONFIG = "peft.peft_model", "peft.config"
MERGING = {
    "peft.tuners.tuners_utils": "BaseTuner",
    "peft.tuners.lora.model": "LoraModel",
}
"""By module: the class whose `merge_and_unload` is wrapped, if it has one of its own."""
HOOKED = (MAKING, CONFIG, *MERGING)
LISTS = ("target_modules", "modules_to_save")
SECOND = ".lora_B."
"""Part of the names of weights that are zero in a new adapter."""
PARTS = ("lora_B", "lora_embedding_B")
"""Attributes of a layer of peft's with such weights."""
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
"""The files of an adapter's weights beside its configuration."""

_read: list[tuple[weakref.ref[Any], str]] = []
"""Configurations read from a folder that has weights, which weren't loaded, and the folder."""


def install(module: ModuleType) -> None:
    """Wraps the making, reading, loading and merging of adapters."""
    if module.__name__ == CONFIG:
        after(module, "PeftConfigMixin.from_pretrained", Check.TRAINED, _note_folder)
    elif module.__name__ == MAKING:
        wrapt.wrap_function_wrapper(module, "PeftModel.__init__", partial(_making, module))
        after(module, "PeftModel.load_adapter", Check.TRAINED, _forget_folder)
    else:
        kind = getattr(module, MERGING[module.__name__])
        if "merge_and_unload" in vars(kind):
            before(kind, "merge_and_unload", Check.SAVED, _look_at_ties)


def _making(module: Any, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
    """Looks at what a new adapter names, and at the weights of one that the model had."""
    if not is_on(Check.TRAINED):
        wrapped(*args, **kwargs)
        return
    model, config = argument(args, kwargs, 0, "model"), argument(args, kwargs, 1, "peft_config")
    held: dict[str, Any] = {}
    if not getattr(config, "inference_mode", False):
        safely(Check.TRAINED, _look_at_names, model, config)
    if isinstance(model, module.PeftModel):
        safely(Check.TRAINED, lambda: held.update(_weights_of(model)))
    wrapped(*args, **kwargs)
    if held:
        safely(Check.TRAINED, _look_for, held, instance)


def _look_at_names(model: Any, config: Any) -> None:
    """Reports names that match nothing; peft replaces the list of a model that it knows later."""
    modules = [name for name, _ in model.named_modules()]
    for option in LISTS:
        names = getattr(config, option, None)
        if isinstance(names, list | set | tuple) and names:
            report_here(adapted.named_in_vain(option, [*map(str, names)], modules))


def _weights_of(model: Any) -> Iterator[tuple[str, Any]]:
    """Weights of adapters that a training or a checkpoint has changed."""
    for name, param in model.named_parameters():
        if SECOND in name and not param.is_meta and bool(param.detach().any()):
            yield name, param


def _look_for(held: dict[str, Any], model: Any) -> None:
    """Reports weights that the model has no more."""
    left = {id(param) for param in model.parameters()}
    lost = [name for name, weight in held.items() if id(weight) not in left]
    report_here(adapted.replaced(lost))


def _note_folder(_kind: Any, args: Any, kwargs: Any, config: Any) -> None:
    """Records a configuration that has weights beside it."""
    folder = str(argument(args, kwargs, 0, "pretrained_model_name_or_path"))
    if any(Path(folder, name).is_file() for name in WEIGHTS):
        _read.append((weakref.ref(config), folder))


def _forget_folder(_model: Any, args: Any, kwargs: Any, _result: Any) -> None:
    """Forgets a configuration whose weights are loaded, which may have read it again."""
    folder = str(argument(args, kwargs, 0, "model_id"))
    _read[:] = [known for known in _read if known[1] != folder]


def judged(models: Collection[Any]) -> Iterator[Finding]:
    """Reports adapters that are frozen or new.

    Args:
        models: the models, without wrappers, before the first step.
    """
    yield from _frozen(models)
    yield from _unloaded(models)


def _frozen(models: Iterable[Any]) -> Iterator[Finding]:
    """Reports models that train something, but nothing of their adapters."""
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
            yield adapted.frozen([*dict(parts)])


def _unloaded(models: Iterable[Any]) -> Iterator[Finding]:
    """Reports new adapters whose configuration was read beside trained weights."""
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
                yield adapted.unloaded(seconds[0][0], folders[id(config)])


def _look_at_ties(tuner: Any, *_call: Any) -> None:
    """Reports an adapter on one of the layers that share a weight."""
    model = tuner.model
    if not hasattr(model, "get_output_embeddings"):
        return
    layers = {"input": model.get_input_embeddings(), "output": model.get_output_embeddings()}
    bases = (getattr(layer, "base_layer", layer) for layer in layers.values())
    weights = [getattr(base, "weight", None) for base in bases]
    if weights[0] is None or weights[0] is not weights[1]:
        return
    names = {id(module): name for name, module in model.named_modules()}
    adapted_layers = [layer for layer in layers.values() if _is_adapted(layer)]
    others = [layer for layer in layers.values() if not hasattr(layer, "base_layer")]
    if len(adapted_layers) == len(others) == 1:
        first, second = (names[id(layer)] for layer in (adapted_layers[0], others[0]))
        report_here(adapted.merged_into_both(first, second))


def _is_adapted(layer: Any) -> bool:
    """Whether a layer has a trained adapter."""
    parts = [part for name in PARTS for part in getattr(layer, name, {}).values()]
    weights = [getattr(part, "weight", part) for part in parts]
    return any(not weight.is_meta and bool(weight.detach().any()) for weight in weights)
