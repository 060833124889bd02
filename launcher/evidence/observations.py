"""What the guards of this worker have seen: facts, settings in force, models, steps."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ..core import preset
from ..core.settings import Checkpointing, Fact, Setting, Value
from .from_memory import process_data
from .worker_channel import Sender

observed: dict[str, Value] = {}
"""Settings in force and facts, by name."""
sender: Sender | None = None
"""Where new sightings are told; set by the worker's entry."""
report_imports: Callable[[], Any] | None = None
"""Says what this process has imported; set by the worker's entry where somebody wants to know."""

before_model: int | None = None
"""Bytes of the process's data when the first model was seen, less the model's own."""

_models: list[weakref.ref[Any]] = []
_steps: list[Callable[[], int | None]] = []


@functools.lru_cache(maxsize=4)
def _decoded(text: str) -> dict[Setting, Value]:
    return preset.decode(text)


def overrides() -> dict[Setting, Value]:
    """The settings that this worker enforces, read anew from the environment at every call."""
    return _decoded(os.environ.get(preset.OVERRIDES_VARIABLE, "{}"))


def replaced() -> dict[Setting, Value]:
    """What the script asks for of the settings that are enforced, where that is known."""
    return _decoded(os.environ.get(preset.REPLACED_VARIABLE, "{}"))


def see(**seen: Value | None) -> None:
    """Notes settings in force and facts, and tells the launcher those that are new.

    Reentrant checkpointing, once seen, stays: one reentrant block is enough for the failures that
    depend on it.
    """
    news: dict[str, Value] = {}
    for name, value in seen.items():
        if value is None or observed.get(name) == value:
            continue
        if name == Setting.GRADIENT_CHECKPOINTING and observed.get(name) == Checkpointing.REENTRANT:
            continue
        news[name] = observed[name] = value
    if news and sender is not None:
        sender.send("observed", {"observed": news, "step": step()})


def see_model(model: Any) -> None:
    """Remembers a model, for the names of its parameters, and notes whether parts are frozen.

    A model without any trainable parameter, a teacher or a reference, isn't what is trained.
    """
    if model is None or any(reference() is model for reference in _models):
        return
    trained = [bool(parameter.requires_grad) for parameter in model.parameters()]
    if any(trained):
        _models.append(weakref.ref(model))
        if len(_models) == 1:
            with contextlib.suppress(Exception):  # an odd model still trains
                _tell_first(model)
        see(**{Fact.FROZEN_PARAMETERS: not all(trained)})


def _tell_first(model: Any) -> None:
    """Notes what the process held before the model, and tells the launcher the model's shape."""
    global before_model
    before_model = max(process_data() - sum(map(bytes_of, model.parameters())), 0)
    if sender is not None:
        sender.send("model", {"shape": shape_of(model)})
        if report_imports is not None:
            sender.send("imported", {"imported": report_imports()})


def count_steps(counter: Callable[[], int | None]) -> None:
    """Adds a source of the number of optimizer steps done; the one added last is believed."""
    _steps.append(counter)


def step() -> int | None:
    """Optimizer steps done; None where nobody counts."""
    for counter in reversed(_steps):
        if (count := counter()) is not None:
            return count
    return None


def models() -> Iterator[Any]:
    """The models seen that are still alive, the latest first."""
    for reference in reversed(_models):
        if (model := reference()) is not None:
            yield model


def size_of(parameter: Any) -> int:
    """Elements of a parameter, whole even where ZeRO-3 has partitioned it."""
    return int(getattr(parameter, "ds_numel", None) or parameter.numel())


def bytes_of(parameter: Any) -> int:
    """Bytes that a parameter holds in this process."""
    return int(parameter.numel()) * int(parameter.element_size())


def shape_of(model: Any) -> dict[str, Any]:
    """A model in the terms of `core/model.py`: its configuration, and its parameters by kind.

    The parameters are name (every number in it as `*`), shape, trained, bits where they are
    quantized (bitsandbytes keeps the logical shape of 4 bits in `quant_state`), and count.
    """
    counts: dict[tuple[str, tuple[int, ...], bool, float | None], int] = {}
    for name, one in model.named_parameters():
        plain = re.sub(r"^(module\.|_orig_mod\.)+", "", name)
        plain = re.sub(r"(?<![^.])\d+(?![^.])", "*", plain)
        plain = re.sub(r"^base_model\.model\.|\.base_layer|\.default(?=\.weight)", "", plain)
        state = getattr(one, "quant_state", None)
        whole = getattr(one, "ds_shape", None) or (one.shape if state is None else state.shape)
        bits = (8.0 if one.element_size() == 1 else None) if state is None else 4.5
        key = (plain, tuple(int(size) for size in whole), bool(one.requires_grad), bits)
        counts[key] = counts.get(key, 0) + 1
    config = getattr(model, "config", None)
    described = {} if config is None or not hasattr(config, "to_dict") else config.to_dict()
    weights = [[*key, count] for key, count in counts.items()]
    plain_config = json.dumps(described, default=str, skipkeys=True)
    return {"config": json.loads(plain_config), "weights": weights}


def describe_model() -> dict[str, Value]:
    """The latest model: class, counts of trainable and frozen parameters, whether peft wraps it."""
    for model in models():
        trainable = frozen = 0
        for _, parameter in model.named_parameters():
            if parameter.requires_grad:
                trainable += size_of(parameter)
            else:
                frozen += size_of(parameter)
        return {
            "class": type(model).__name__,
            "trainable_parameters": trainable,
            "frozen_parameters": frozen,
            "peft": any(hasattr(module, "peft_config") for module in model.modules()),
        }
    return {}
