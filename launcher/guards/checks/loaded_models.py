"""Finds what loading leaves new or frozen: adapters, parameters that a checkpoint lacks."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import wrapt

from ...checks import built, saved
from ...checks.finding import Check, Finding
from ..loading import DTYPES
from . import dtypes
from .reporting import is_on, report_here, safely

CONFIG = "peft.config"
SECOND = ".lora_B."
"""Part of the names of weights that are zero in a new adapter."""
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
"""The files of an adapter's weights beside its configuration."""
LOADING = "transformers.modeling_utils"
HOOKED = ("peft.peft_model", CONFIG, LOADING)
KEPT = "original_module"
"""peft's name of a trained copy's original."""


_read: list[tuple[weakref.ref[Any], str]] = []
"""Configurations read from a folder that has weights, which weren't loaded, and the folder."""
_new: weakref.WeakKeyDictionary[Any, frozenset[int]] = weakref.WeakKeyDictionary()
"""By model: ids of the parameters that its checkpoint lacks."""


loaded: weakref.WeakSet[Any] = weakref.WeakSet()
"""Models that `from_pretrained` has made."""


def install(module: ModuleType) -> None:
    """Wraps the loading of models, and the reading and making of adapters."""
    if module.__name__ == LOADING:
        wrapt.wrap_function_wrapper(module.PreTrainedModel, "from_pretrained", _loaded)
        return
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


def judged(models: Collection[Any]) -> Iterator[Finding]:
    """Reports adapters that are frozen or new, and new parameters that are frozen.

    Args:
        models: the models, without wrappers, before the first step.
    """
    yield from _frozen_adapters(models)
    yield from _unloaded_adapters(models)
    yield from _untrained(models)


def _frozen_adapters(models: Iterable[Any]) -> Iterator[Finding]:
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
            yield built.frozen_adapter([*dict(parts)])


def _unloaded_adapters(models: Iterable[Any]) -> Iterator[Finding]:
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
                yield built.unloaded_adapter(seconds[0][0], folders[id(config)])


def _loaded(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
    if kwargs.get("output_loading_info") or not is_on(Check.TRAINED, Check.SAVED):
        return wrapped(*args, **kwargs)
    result = wrapped(*args, **{**kwargs, "output_loading_info": True})
    if not isinstance(result, tuple):
        return result
    model, info = result
    loaded.add(model)
    if not any(map(kwargs.get, DTYPES)):
        dtypes.unasked.add(model)
    safely(Check.TRAINED, _note_missing, model, info)
    return model


def _note_missing(model: Any, info: Mapping[str, Collection[str]]) -> None:
    missing = {*info["missing_keys"]}
    if not missing:
        return
    named = dict(model.named_parameters())
    _new[model] = frozenset(id(param) for name, param in named.items() if name in missing)
    unexpected = [name for name in info["unexpected_keys"] if isinstance(name, str)]
    if unexpected and missing.issuperset(named):
        report_here(saved.fits_nothing(unexpected, named))


def _untrained(models: Iterable[Any]) -> Iterator[Finding]:
    """Reports new parameters that are frozen while others are trained."""
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
            yield built.new_and_frozen(names, _short(layer, others))


def _short(name: str, others: Collection[str]) -> str:
    """The shortest end of a module's name that no other has, as peft takes it."""
    parts = name.split(".")
    ends = (".".join(parts[place:]) for place in reversed(range(len(parts))))
    unique = (end for end in ends if not any(other.endswith(end) for other in others))
    return next(unique, name)
