"""Inspects what new adapters of peft's name, and merges into tied weights."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import wrapt

from ...checks import adapted
from ...checks.finding import Check
from .reporting import is_on, report_here, safely

MAKING = "peft.peft_model"
MERGING = {
    "peft.tuners.tuners_utils": "BaseTuner",
    "peft.tuners.lora.model": "LoraModel",
}
"""By module: the class whose `merge_and_unload` is wrapped, if it has one of its own."""
HOOKED = (MAKING, *MERGING)
LISTS = ("target_modules", "modules_to_save")
PARTS = ("lora_B", "lora_embedding_B")
"""Attributes of a layer of peft's with the weights that are zero in a new adapter."""


def install(module: ModuleType) -> None:
    """Wraps the making of adapters, and merges."""
    if module.__name__ == MAKING:
        wrapt.wrap_function_wrapper(module, "PeftModel.__init__", _made)
        return
    kind = getattr(module, MERGING[module.__name__])
    if "merge_and_unload" in vars(kind):
        wrapt.wrap_function_wrapper(kind, "merge_and_unload", _merging)


def _made(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> None:
    model = args[0] if args else kwargs.get("model")
    config = args[1] if len(args) > 1 else kwargs.get("peft_config")
    if is_on(Check.TRAINED) and not getattr(config, "inference_mode", False):
        safely(Check.TRAINED, _judge, model, config)
    wrapped(*args, **kwargs)


def _judge(model: Any, config: Any) -> None:
    """Reports names that match nothing; peft replaces the list of a model that it knows later."""
    modules = [name for name, _ in model.named_modules()]
    for option in LISTS:
        names = getattr(config, option, None)
        if isinstance(names, list | set | tuple) and names:
            report_here(adapted.named_in_vain(option, [*map(str, names)], modules))


def _merging(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    if is_on(Check.SAVED):
        safely(Check.SAVED, _look_at_ties, instance.model)
    return wrapped(*args, **kwargs)


def _look_at_ties(model: Any) -> None:
    """Reports an adapter on one of the layers that share a weight."""
    if not hasattr(model, "get_output_embeddings"):
        return
    layers = {"input": model.get_input_embeddings(), "output": model.get_output_embeddings()}
    weights = [getattr(_base(layer), "weight", None) for layer in layers.values()]
    if weights[0] is None or weights[0] is not weights[1]:
        return
    names = {id(module): name for name, module in model.named_modules()}
    adapted_layers = [layer for layer in layers.values() if _is_adapted(layer)]
    others = [layer for layer in layers.values() if not hasattr(layer, "base_layer")]
    if len(adapted_layers) == len(others) == 1:
        first, second = (names[id(layer)] for layer in (adapted_layers[0], others[0]))
        report_here(adapted.merged_into_both(first, second))


def _base(layer: Any) -> Any:
    return getattr(layer, "base_layer", layer)


def _is_adapted(layer: Any) -> bool:
    """Whether a layer has a trained adapter."""
    parts = [part for name in PARTS for part in getattr(layer, name, {}).values()]
    weights = [getattr(part, "weight", part) for part in parts]
    return any(not weight.is_meta and bool(weight.detach().any()) for weight in weights)
