"""Checks that saved weights are the trained ones, and that loaded weights fit."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import wrapt

from ...checks import saved
from ...checks.finding import Check, Finding
from ...evidence.observations import observations
from ...workload.models import stored_weights
from ..callers import FRAMEWORKS, is_called_by
from . import state_dicts
from .copies import Copy, copied, sample, spread
from .models import known_models, parameters_in
from .reporting import is_on, report_here, safely

TORCH = "torch.serialization"
FOLDERS = {
    "transformers.modeling_utils": "PreTrainedModel.save_pretrained",
    "peft.peft_model": "PeftModel.save_pretrained",
}
MODULES = "torch.nn.modules.module"
HOOKED = (TORCH, MODULES, *FOLDERS)
MOST_TAKEN = 50
"""Maximum state dicts to record: a recorded one takes a quarter longer to make."""
SMALL = 1 << 22
"""Maximum bytes of a saved weight to read again."""
TYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""safetensors dtypes whose values are read, and torch's names for them."""
KEYS = ("model", "module", "state_dict", "model_state_dict", "net")
"""Common keys of a state dict in a checkpoint."""

_begun: dict[str, Copy] = {}
"""Samples of the models' parameters before the first step, by name."""


def remember(models: Iterable[Any]) -> None:
    """Begins to copy samples of the models' parameters before the first step, once."""
    usable = [
        (name, parameter)
        for _, name, parameter in parameters_in(models)
        if parameter.requires_grad and name not in _begun and sample(parameter) is not None
    ]
    if _begun or not is_on(Check.SAVED):
        return
    for name, parameter in spread(usable):
        copy = copied([sample(parameter)])
        if copy is not None:
            _begun[name] = copy


def install(module: ModuleType) -> None:
    """Wraps `torch.save`, `save_pretrained`, `state_dict` and `load_state_dict`."""
    if module.__name__ == MODULES:
        wrapt.wrap_function_wrapper(module, "Module.load_state_dict", _load)
        _watch_state_dicts(module.Module)
        return
    path = FOLDERS.get(module.__name__, "save")
    look = _look_at_folder if module.__name__ in FOLDERS else _look_at_object

    def wrapper(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        result = wrapped(*args, **kwargs)
        if is_on(Check.SAVED):
            safely(Check.SAVED, look, instance, args, kwargs)
        return result

    wrapt.wrap_function_wrapper(module, path, wrapper)


def _watch_state_dicts(kind: Any) -> None:
    """Records the first state dicts of whole models; those of their modules have a destination.

    Then the method is as before: some loops take the state dict in every step.
    """
    original, left = kind.state_dict, MOST_TAKEN

    @functools.wraps(original)
    def state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal left
        result = original(self, *args, **kwargs)
        if left and not args and kwargs.get("destination") is None and is_on(Check.SAVED):
            safely(Check.SAVED, state_dicts.note, result)
            left -= 1
            if not left and kind.state_dict is state_dict:
                kind.state_dict = original
        return result

    kind.state_dict = state_dict


def _load(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Checks a load against its model."""
    states = args[0] if args else kwargs.get("state_dict")
    if is_on(Check.SAVED):
        safely(Check.SAVED, partial(state_dicts.look, is_loaded=True), states)
        safely(Check.SAVED, _look_at_own, instance, states)
    result = wrapped(*args, **kwargs)
    if is_on(Check.SAVED) and getattr(result, "unexpected_keys", None):
        safely(Check.SAVED, _look_at_load, states, result)
    return result


def _look_at_own(instance: Any, states: Any) -> None:
    """Checks that a load isn't one of nothing, as if no name of a checkpoint had fitted."""
    if not isinstance(states, Mapping) or is_called_by(*FRAMEWORKS, "peft", "torch"):
        return
    is_empty = not states and next(instance.parameters(), None) is not None
    if is_empty or state_dicts.is_loaded_into_itself(instance, states):
        report_here(saved.loads_itself(len(states)))


def _look_at_load(states: Any, result: Any) -> None:
    """Checks the loaded names against the names that didn't fit."""
    report_here(saved.loads_nothing(states, result.unexpected_keys, result.missing_keys))


def _look_at_object(_instance: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
    """Checks a state dict passed to `torch.save`, alone or under a usual key."""
    states = args[0] if args else kwargs.get("obj")
    if not isinstance(states, Mapping) or is_called_by("deepspeed"):
        return  # DeepSpeed's checkpoints have the weights in other files
    state_dicts.look(states, is_loaded=False)
    held = next((states[key] for key in KEYS if isinstance(states.get(key), Mapping)), states)
    weights = {
        str(name).removeprefix("module.").removeprefix("_orig_mod."): value
        for name, value in held.items()
        if hasattr(value, "shape")
    }
    live = {name: param for _, name, param in parameters_in(known_models())}
    known = {name: tensor for name, tensor in weights.items() if name in live}
    if len(known) < len(live) / 2:
        return
    shapes = {name: tuple(tensor.shape) for name, tensor in known.items()}
    whole = {name: _shape(param) for name, param in live.items()}
    finding = saved.empty(shapes, whole)
    if finding is None and not _is_of_rank(args[1] if len(args) > 1 else kwargs.get("f")):
        finding = saved.cut(shapes, whole)
    values = {name: _values(known[name]) for name in _begun_values() if name in known}
    # Not certain: the best so far may be that of the beginning.
    report_here(finding or _stale(values, live, is_certain=False), step=observations.step())


def _look_at_folder(instance: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
    """Checks files written by `save_pretrained` by their headers."""
    if not kwargs.get("is_main_process", True) or kwargs.get("state_dict") == {}:
        return  # an empty state dict is a placeholder, as the Trainer writes under stage 3
    folder = Path(args[0] if args else kwargs["save_directory"])
    tensors = stored_weights.read_tensors(sorted(folder.glob("*.safetensors")))
    live = dict(instance.named_parameters())
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    buffers = {name: tuple(buffer.shape) for name, buffer in instance.named_buffers()}
    known = buffers | {name: _shape(param) for name, param in live.items()}
    is_trained = any(model is instance for model in known_models())
    values = {
        name: _read(tensors[name])
        for name in _begun_values()
        if is_trained and name in tensors and "state_dict" not in kwargs
        if tensors[name].dtype in TYPES and tensors[name].end - tensors[name].begin <= SMALL
    }
    finding = saved.empty(shapes, known)
    if finding is None and is_trained and tensors and hasattr(instance, "peft_config"):
        finding = saved.left_out(_beside(instance, tensors))
    report_here(finding or _stale(values, live, is_certain=True), step=observations.step())


def _beside(instance: Any, held: Collection[str]) -> list[str]:
    """Trained parameters that aren't in adapter files, under any of the names of tied ones.

    The adapters' parameters contain the adapter's name, which the files leave out.
    """
    names: dict[int, list[str]] = {}
    for name, param in instance.named_parameters(remove_duplicate=False):
        if param.requires_grad:
            names.setdefault(id(param), []).append(name)
    adapters = {*instance.peft_config}
    return [
        same[0]
        for same in names.values()
        if not any(name in held or adapters & {*name.split(".")} for name in same)
    ]


def _stale(
    values: dict[str, list[float]], live: Mapping[str, Any], *, is_certain: bool
) -> Finding | None:
    """Reports saved weights equal to those before the training."""
    now = {name: _values(live[name]) for name in values if name in live}
    return saved.stale(values, now, _begun_values(), is_certain=is_certain)


def _values(tensor: Any) -> list[float]:
    part = sample(tensor.data if hasattr(tensor, "data") else tensor)
    return [] if part is None else [float(value) for value in part.tolist()]


def _read(tensor: stored_weights.Tensor) -> list[float]:
    import torch

    kind = getattr(torch, TYPES[tensor.dtype])
    return _values(torch.frombuffer(bytearray(tensor.content()), dtype=kind))


def _is_of_rank(file: object) -> bool:
    """Whether the file may be this rank's, by its name."""
    rank = os.environ.get("RANK", "0")
    return not isinstance(file, str | os.PathLike) or rank in re.findall(r"\d+", os.fspath(file))


def _shape(parameter: Any) -> tuple[int, ...]:
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


def _begun_values() -> dict[str, Sequence[float]]:
    """The samples from before the first step that have arrived."""
    return {name: copy.parts()[0] for name, copy in _begun.items() if copy.is_there}
