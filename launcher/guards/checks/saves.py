"""Follows state dicts, and checks that saved weights are the trained ones."""

from __future__ import annotations

import functools
import os
import re
import weakref
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ...checks import saved
from ...checks.finding import Check, Finding
from ...core.private_names import VERSION
from ...evidence.observations import observations
from ...workload.models import stored_weights
from ..callers import is_called_by, user_place
from .calls import after, argument
from .copies import Copy, arrived, copied, local, sample, sampled, spread
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


@dataclass(frozen=True, slots=True)
class Taken:
    """A state dict that a model has returned.

    Attributes:
        states: a weak reference to it.
        step: optimizer steps before; None before the first optimizer.
        where: the user's line that took it.
        writes: how often its tensors had been written in place.
        values: samples of some of them, as collectives and `.data` write without being counted.
    """

    states: weakref.ref[Any]
    step: int | None
    where: str
    writes: int
    values: Copy | None


_taken: dict[int, Taken] = {}
"""The live ones, by id: a dict has no hash."""
_begun: dict[str, Copy] = {}
"""Samples of the models' parameters before the first step, by name."""


def install(module: ModuleType) -> None:
    """Wraps `torch.save`, `save_pretrained` and `state_dict`."""
    if module.__name__ == MODULES:
        _watch_state_dicts(module.Module)
    elif module.__name__ == TORCH:
        after(module, "save", Check.SAVED, _look_at_object)
    else:
        after(module, FOLDERS[module.__name__], Check.SAVED, _look_at_folder)


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
            safely(Check.SAVED, note, result)
            left -= 1
            if not left and kind.state_dict is state_dict:
                kind.state_dict = original
        return result

    kind.state_dict = state_dict


def note(states: Any) -> None:
    """Records a state dict that the user's code has taken."""
    if not isinstance(states, OrderedDict):  # as others have no weak references
        return
    key = id(states)
    reference = weakref.ref(states, lambda _: _taken.pop(key, None))
    about = observations.step(), user_place()
    _taken[key] = Taken(reference, *about, _writes(states), _samples(states))


def look_at_states(content: Any, *, is_loaded: bool) -> None:
    """Checks the state dicts in an object that is saved or loaded."""
    step = observations.step()
    for states in _states_in(content):
        taken = _taken[id(states)]
        if step is None or taken.step is None or taken.step >= step:
            continue
        live = {_place(param) for _, _, param in parameters_in(known_models())} - {0}
        name = next((name for name, tensor in states.items() if _place(tensor) in live), None)
        if name is not None:
            about = name, taken.step, taken.where
            report_here(saved.by_reference(*about, is_loaded=is_loaded), step=step)


def is_loaded_into_itself(model: Any, states: Mapping[str, Any]) -> bool:
    """Whether a recorded state dict has the model's own tensors alone, unwritten since.

    Loads of torch.distributed.checkpoint write into them before. On a device, whose values would
    have to be waited for, it is taken for written.
    """
    taken = _taken.get(id(states))
    if taken is None or id(taken.states()) != id(states) or taken.writes != _writes(states):
        return False
    copies = taken.values, _samples(states)
    seen = [copy.parts() for copy in copies if copy is not None and copy.is_there]
    if len(seen) < len(copies) or seen[0] != seen[1]:
        return False
    tensors = (*model.named_parameters(), *model.named_buffers())
    own = {name: _place(tensor) for name, tensor in tensors}
    names = [name for name, tensor in states.items() if _place(tensor)]
    return bool(names) and all(own.get(name) == _place(states[name]) for name in names)


def _writes(states: Mapping[str, Any]) -> int:
    """How often tensors were written in place, a count that parameters share with their states."""
    return sum(VERSION.of(tensor) for tensor in states.values() if hasattr(tensor, "data_ptr"))


def _samples(states: Mapping[str, Any]) -> Copy | None:
    """Samples of some tensors; None if there are none, or if a graph is being captured."""
    tensors = [tensor for tensor in states.values() if hasattr(tensor, "data_ptr")]
    chosen = [tensor for tensor in tensors if tensor.device == tensors[0].device]
    parts = [part for tensor in spread(chosen) if (part := sample(local(tensor))) is not None]
    return copied(parts) if parts else None


def _states_in(content: Any) -> Iterator[Any]:
    """The recorded state dicts in an object: itself, or a value of it."""
    values = content.values() if isinstance(content, Mapping) else ()
    for value in (content, *values):
        taken = _taken.get(id(value))
        if taken is not None and taken.states() is value:
            yield value


def _place(value: Any) -> int:
    """The address of a tensor's elements on this rank; 0 for an empty one or another object."""
    part = local(value) if hasattr(value, "data_ptr") else None
    return 0 if part is None or not part.numel() else int(part.data_ptr())


def remember(models: Iterable[Any]) -> None:
    """Begins to copy samples of the models' parameters before the first step, once."""
    if not _begun and is_on(Check.SAVED):
        every = parameters_in(models)
        _begun.update(sampled((name, param) for _, name, param in every if param.requires_grad))


def _look_at_object(_instance: Any, args: Any, kwargs: Any, *_result: Any) -> None:
    """Checks a state dict passed to `torch.save`, alone or under a usual key."""
    states = argument(args, kwargs, 0, "obj")
    if not isinstance(states, Mapping) or is_called_by("deepspeed"):
        return  # DeepSpeed's checkpoints have the weights in other files
    look_at_states(states, is_loaded=False)
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
    if finding is None and not _is_of_rank(argument(args, kwargs, 1, "f")):
        finding = saved.cut(shapes, whole)
    values = {name: _values(known[name]) for name in arrived(_begun) if name in known}
    # Not certain: the best so far may be that of the beginning.
    report_here(finding or _stale(values, live, is_certain=False), step=observations.step())


def _look_at_folder(instance: Any, args: Any, kwargs: Any, *_result: Any) -> None:
    """Checks files written by `save_pretrained` by their headers."""
    if not kwargs.get("is_main_process", True) or kwargs.get("state_dict") == {}:
        return  # an empty state dict is a placeholder, as the Trainer writes under stage 3
    folder = Path(argument(args, kwargs, 0, "save_directory"))
    tensors = stored_weights.read_tensors(sorted(folder.glob("*.safetensors")))
    live = dict(instance.named_parameters())
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    buffers = {name: tuple(buffer.shape) for name, buffer in instance.named_buffers()}
    known = buffers | {name: _shape(param) for name, param in live.items()}
    is_trained = any(model is instance for model in known_models())
    values = {
        name: _read(tensors[name])
        for name in arrived(_begun)
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
    return saved.stale(values, now, arrived(_begun), is_certain=is_certain)


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
