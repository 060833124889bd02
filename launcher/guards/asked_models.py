"""Makes models without their weights, on the meta device, for a process that is only asked."""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from ..core.private_names import ATTENTION
from ..evidence.asked_alone import EndOfAskingError


def load(wrapped: Any, kind: Any, args: Any, kwargs: Any, *, is_stored: bool) -> Any:
    """A model on the meta device, in place of one with weights.

    Raises:
        EndOfAskingError: it can't be made so.
    """
    import torch

    if torch.get_default_device().type == "meta":  # part of another model
        return wrapped(*args, **kwargs)
    try:
        config, dtype = _config_of(kind, args, kwargs, is_stored=is_stored)
        with _default_dtype(dtype), torch.device("meta"):
            model = _made(kind, config)
    except Exception as error:
        what = f"{kind.__name__} can't be made without its weights"
        raise EndOfAskingError(f"{what}: {type(error).__name__}: {error}") from error
    quantization = kwargs.get("quantization_config") or getattr(config, "quantization_config", None)
    if is_stored and quantization:
        _quantize(model, quantization)
    return (model.eval(), {}) if kwargs.get("output_loading_info") else model.eval()


def _made(kind: Any, config: Any) -> Any:
    """A model; where its attention can't run on this host, it is only named."""
    try:
        return kind(config)
    except (ImportError, ValueError):
        attention = ATTENTION.of(config)
        setattr(config, ATTENTION.attribute, "eager")
        model = kind(config)
        setattr(model.config, ATTENTION.attribute, attention)
        return model


def _config_of(
    kind: Any, args: Any, kwargs: Mapping[str, Any], *, is_stored: bool
) -> tuple[Any, Any]:
    """The configuration of a model that is loaded or made, and the type of its weights."""
    import torch
    import transformers

    given = dict(kwargs)
    config = given.pop("config", args[0] if args else None)
    named = [given.pop(name, None) for name in ("dtype", "torch_dtype")]
    asked = next((each for each in named if each is not None), None)
    if isinstance(config, str | os.PathLike):
        config, _ = kind.config_class.from_pretrained(config, return_unused_kwargs=True, **given)
    else:
        config = copy.deepcopy(config)
    if given.get("attn_implementation"):
        setattr(config, ATTENTION.attribute, given["attn_implementation"])
    is_newer = int(transformers.__version__.partition(".")[0]) >= 5
    if asked == "auto" or (asked is None and (is_newer or not is_stored)):
        asked = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
    asked = getattr(torch, asked.rpartition(".")[2]) if isinstance(asked, str) else asked
    return config, asked if isinstance(asked, torch.dtype) else torch.get_default_dtype()


@contextmanager
def _default_dtype(dtype: Any) -> Iterator[None]:
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _quantize(model: Any, quantization: Any) -> None:
    """Marks the weights that bitsandbytes would hold in 4 bits; other kinds can't be told apart.

    Raises:
        EndOfAskingError: it is another kind.
    """
    import torch

    told = quantization if isinstance(quantization, Mapping) else vars(quantization)
    is_4bit = told.get("load_in_4bit") or told.get("_load_in_4bit")
    is_8bit = told.get("load_in_8bit") or told.get("_load_in_8bit")
    if not (is_4bit or is_8bit):
        raise EndOfAskingError("its quantized weights can't be made without reading them")
    head = model.get_output_embeddings()
    for module in model.modules():
        if isinstance(module, torch.nn.Linear) and module is not head:
            held = module.weight.detach()
            held = held if is_4bit else held.to(torch.int8)
            module.weight = torch.nn.Parameter(held, requires_grad=False)
            if is_4bit:
                module.weight.quant_state = SimpleNamespace(shape=held.shape)
    name = "is_loaded_in_4bit" if is_4bit else "is_loaded_in_8bit"
    setattr(model, name, True)


def resize(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
    """New embeddings would be computed from the others, which have no values."""
    is_known = "mean_resizing" in inspect.signature(wrapped).parameters
    return wrapped(*args, **{**kwargs, **({"mean_resizing": False} if is_known else {})})
