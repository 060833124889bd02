"""Notes what a loaded checkpoint has besides the weights, and whether it is used."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from ...checks import resumed
from ...checks.finding import Check
from ..callers import FRAMEWORKS, is_called_by, user_place
from . import dtypes, early_steps
from .averages import SAMPLED, plain
from .calls import after, argument, before
from .copies import arrived, sample, sampled
from .reporting import is_on, report, report_here, safely
from .resumes import resumes
from .schedules import schedules

TORCH, SCALER, OPTIMIZER, PLANNER = (
    *("torch.serialization", "torch.amp.grad_scaler", "torch.optim.optimizer"),
    "torch.distributed.checkpoint.default_planner",
)
SETTING = {
    "random": ("setstate",),
    "numpy.random": ("set_state",),
    "torch.random": ("set_rng_state",),
    "torch.cuda.random": ("set_rng_state", "set_rng_state_all"),
}
"""Functions that set random states, by module."""
HOOKED = (TORCH, SCALER, OPTIMIZER, PLANNER, *SETTING)
OF_SCALER = {"scale", "growth_factor", "backoff_factor", "growth_interval"}
LEAST = 512
"""Minimum length of the state of a random number generator."""
NESTED = ("shadow", "model", "module", "state_dict", "params", "model_state_dict")
"""Keys of an average's weights in its state dict."""
DEPTH = 3
"""Maximum depth of an optimizer's state dict in what a load fills."""
NAMES = ("lr", "weight_decay")
"""Numbers of an optimizer's groups to compare."""
Numbers = list[dict[str, float]]
"""Each group's numbers by name."""


class Loaded:
    """What the last loaded checkpoint has of a training.

    Attributes:
        averages: samples of the tensors by name, for each key beside the optimizer's.
        where: the user's line that has loaded it.
        continued: the optimizers that have loaded their state from it.
    """

    def __init__(self) -> None:
        self.averages: dict[str, dict[str, list[float]]] = {}
        self.where = ""
        self._scaler = ""  # its key
        self._random: tuple[str, ...] = ()  # keys of random states
        self._states: set[int] = set()  # ids of its optimizers' states
        self.continued: weakref.WeakSet[Any] = weakref.WeakSet()

    def load(self, content: Any) -> None:
        """Records a loaded object that has the state of an optimizer."""
        if not isinstance(content, Mapping) or is_called_by(*FRAMEWORKS):
            return
        states = {
            id(value)
            for value in content.values()
            if isinstance(value, Mapping) and "param_groups" in value
        }
        if not states:
            return
        self.averages, self._scaler, self._states = {}, "", states
        self.continued.clear()
        self.where = user_place()
        random: list[str] = []
        kinds: set[str] = set()
        for key, value in content.items():
            found = set(_random_in(value))
            kinds |= found
            random += [str(key)] if found else []
            if not isinstance(value, Mapping) or "param_groups" in value:
                continue
            if value.keys() >= OF_SCALER:
                self._scaler = str(key)
            elif samples := _samples_in(value):
                self.averages[str(key)] = samples
        # One alone may be that of a generator, whose own method sets it.
        self._random = tuple(random) if len(kinds) > 1 else ()

    def loads_scaler(self) -> None:
        """Records that a scaler has loaded a state."""
        self._scaler = ""

    def sets_random(self) -> None:
        """Records that random states are set."""
        self._random = ()

    def continues(self, optimizer: Any, states: Any) -> None:
        """Records an optimizer that loads this checkpoint's state."""
        if id(states) in self._states:
            self.continued.add(optimizer)

    def look(self, optimizer: Any, step: int) -> None:
        """Reports what isn't used by the first step of an optimizer that has loaded its state."""
        if step != 1 or optimizer not in self.continued:
            return
        if self._scaler and any(scaler.is_enabled() for scaler in dtypes.scalers):
            report(resumed.scaler_unused(self._scaler), where=self.where)
        if self._random:
            report(resumed.random_unused(self._random), where=self.where)
        self._scaler, self._random = "", ()


loaded = Loaded()
_overruled: weakref.WeakKeyDictionary[Any, tuple[Numbers, Numbers, str]]
_overruled = weakref.WeakKeyDictionary()
"""By optimizer: its numbers before and after its last load, and the user's line."""


def install(module: ModuleType) -> None:
    """Wraps the functions that load checkpoints, and those that take their parts."""
    name = module.__name__
    for path in SETTING.get(name, ()):
        setattr(module, path, _setting(getattr(module, path)))
    if name == TORCH:
        after(module, "load", Check.RESUMED, lambda *call: loaded.load(call[-1]))
    elif name == SCALER:
        path = "GradScaler.load_state_dict"
        before(module, path, Check.RESUMED, lambda *_: loaded.loads_scaler())
    elif name == PLANNER:
        before(module, "DefaultLoadPlanner.set_up_planner", Check.RESUMED, _planning)
    elif name == OPTIMIZER:
        module.Optimizer.load_state_dict = _loading(module.Optimizer.load_state_dict)
        early_steps.looking(Check.RESUMED, lambda *about: loaded.look(*about))
        early_steps.looking(Check.RESUMED, look_at_numbers)


def _setting(function: Any) -> Any:
    """A plain function around one that sets random states, as checkpointed blocks do each time."""

    @functools.wraps(function)
    def set_state(*args: Any, **kwargs: Any) -> Any:
        loaded.sets_random()
        return function(*args, **kwargs)

    return set_state


def _loading(function: Any) -> Any:
    """A plain function, of which an object can keep a copy, around an optimizer's load."""

    @functools.wraps(function)
    def load_state_dict(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_on(Check.RESUMED):
            return function(optimizer, *args, **kwargs)
        numbers = _numbers_of(optimizer)
        result = function(optimizer, *args, **kwargs)
        safely(Check.RESUMED, loaded.continues, optimizer, argument(args, kwargs, 0, "state_dict"))
        safely(Check.RESUMED, _note_numbers, optimizer, numbers)
        return result

    return load_state_dict


def _numbers_of(optimizer: Any) -> Numbers:
    """The numbers of each group that are plain numbers."""
    groups = getattr(optimizer, "param_groups", ())
    return [
        {name: group[name] for name in NAMES if isinstance(group.get(name), int | float)}
        for group in groups
    ]


def _note_numbers(optimizer: Any, numbers: Numbers) -> None:
    """Records what a load of the script's has made of the numbers."""
    if is_called_by(*FRAMEWORKS):
        _overruled.pop(optimizer, None)
    else:
        first, *_ = _overruled.get(optimizer, (numbers,))
        _overruled[optimizer] = first, _numbers_of(optimizer), user_place()


def look_at_numbers(optimizer: Any, step: int) -> None:
    """Compares the numbers that a script has given an optimizer with those of its first step."""
    if step != 1 or optimizer not in _overruled or not optimizer.state:
        return
    asked, then, where = _overruled.pop(optimizer)
    schedulers = list(schedules.places)
    if any(getattr(one, "optimizer", None) is optimizer for one in schedulers):
        for group in asked:
            group.pop("lr", None)  # the schedule sets it again
    used = _numbers_of(optimizer)
    report(resumed.overruled(type(optimizer).__name__, asked, then, used), where=where)


def _planning(_planner: Any, args: Any, kwargs: Any) -> None:
    """Looks for states in a checkpoint that a load doesn't ask for."""
    metadata = argument(args, kwargs, 1, "metadata")
    for path in _without_states(argument(args, kwargs, 0, "state_dict"), ()):
        place = ".".join((*path, "state"))
        count = sum(str(key).startswith(f"{place}.") for key in metadata.state_dict_metadata)
        if finding := resumed.left_in_checkpoint(place, count):
            report_here(finding)
            resumes.explained()


def _without_states(states: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Paths of optimizers' state dicts that have no states."""
    if not isinstance(states, Mapping) or len(path) > DEPTH:
        return
    if "param_groups" in states and states.get("state") == {}:
        yield path
    for name, value in states.items():
        yield from _without_states(value, (*path, str(name)))


def _random_in(value: Any, depth: int = 2) -> Iterator[str]:
    """The kinds of random states in an entry of a checkpoint."""
    if isinstance(value, Mapping) and depth and len(value) <= LEAST:
        for inner in value.values():
            yield from _random_in(inner, depth - 1)
    elif isinstance(value, tuple | list) and value:
        words = value[1] if len(value) > 1 else None
        if len(value) == 3 and isinstance(words, tuple | list) and len(words) > LEAST:
            yield "python"
        elif isinstance(value[0], str) and value[0] == "MT19937":
            yield "numpy"
        elif depth and len(value) <= LEAST:
            yield from _random_in(value[0], 0)
    elif str(getattr(value, "dtype", "")) == "torch.uint8" and value.numel() > LEAST:
        yield "torch"


def _samples_in(entry: Mapping[str, Any], depth: int = 2) -> dict[str, list[float]]:
    """Samples of a few tensors of an average, by their plain names."""
    tensors = {
        plain(str(name)): value
        for name, value in entry.items()
        if hasattr(value, "data_ptr") and value.numel() > 1 and sample(value) is not None
    }
    if not tensors and depth:
        inner = (entry.get(key) for key in NESTED)
        return next((_samples_in(one, depth - 1) for one in inner if isinstance(one, Mapping)), {})
    return arrived(sampled(tensors.items(), SAMPLED))
