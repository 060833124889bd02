"""Notes what a loaded checkpoint has besides model and optimizer, and whether it is used."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from ...checks import resumed_parts
from ...checks.finding import Check
from ..callers import FRAMEWORKS, is_called_by, user_place
from . import dtypes, early_steps
from .copied_models import SAMPLED, flat, plain
from .copies import copied, sample, spread
from .reporting import is_on, report, safely

TORCH, SCALER, PYTHON, RANDOM = (
    *("torch.serialization", "torch.amp.grad_scaler", "random", "torch.random"),
)
NUMPY, CUDA, OPTIMIZER = "numpy.random", "torch.cuda.random", "torch.optim.optimizer"
HOOKED = (TORCH, SCALER, PYTHON, RANDOM, NUMPY, CUDA, OPTIMIZER)
SETTING = {
    PYTHON: ("setstate",),
    RANDOM: ("set_rng_state",),
    NUMPY: ("set_state",),
    CUDA: ("set_rng_state", "set_rng_state_all"),
}
"""Functions that set random states."""
OF_SCALER = {"scale", "growth_factor", "backoff_factor", "growth_interval"}
LEAST = 512
"""Minimum length of the state of a random number generator."""
NESTED = ("shadow", "model", "module", "state_dict", "params", "model_state_dict")
"""Keys of an average's weights in its state dict."""


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
            report(resumed_parts.scaler_unused(self._scaler), where=self.where)
        if self._random:
            report(resumed_parts.random_unused(self._random), where=self.where)
        self._scaler, self._random = "", ()


loaded = Loaded()


def install(module: ModuleType) -> None:
    """Wraps the functions that load checkpoints, and those that take their parts."""
    name = module.__name__
    for path in SETTING.get(name, ()):
        _wrap(module, path, lambda *_: loaded.sets_random(), is_before=True)
    if name == TORCH:
        _wrap(module, "load", lambda content, *_: loaded.load(content))
    elif name == SCALER:
        kind = module.GradScaler
        _wrap(kind, "load_state_dict", lambda *_: loaded.loads_scaler(), is_before=True)
    elif name == OPTIMIZER:
        _wrap(
            module.Optimizer,
            "load_state_dict",
            lambda _, optimizer, states: loaded.continues(optimizer, states),
        )
        early_steps.looking(Check.RESUMED, lambda *about: loaded.look(*about))


def _wrap(owner: Any, name: str, note: Any, *, is_before: bool = False) -> None:
    """Wraps a function in a plain one that calls `note` with its result and arguments."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        if is_before:
            safely(Check.RESUMED, note)
        result = original(*args, **kwargs)
        if not is_before and is_on(Check.RESUMED):
            safely(Check.RESUMED, note, result, *args, *kwargs.values())
        return result

    setattr(owner, name, function)


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
    copies = {name: copied([sample(tensors[name])]) for name in spread([*tensors], SAMPLED)}
    return {name: values for name, one in copies.items() if (values := flat(one)) is not None}
