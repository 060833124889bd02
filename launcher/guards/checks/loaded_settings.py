"""Compares the numbers that a script gives an optimizer with those that it loads."""

from __future__ import annotations

import functools
import weakref
from types import ModuleType
from typing import Any

from ...checks import resumed_parts
from ...checks.finding import Check
from ..callers import FRAMEWORKS, is_called_by, user_place
from . import early_steps
from .reporting import is_on, report, safely
from .schedules import schedules

HOOKED = ("torch.optim.optimizer",)
NAMES = ("lr", "weight_decay")
Numbers = list[dict[str, float]]
"""Each group's numbers by name."""

_loaded: weakref.WeakKeyDictionary[Any, tuple[Numbers, Numbers, str]] = weakref.WeakKeyDictionary()
"""By optimizer: what it had before and after its last load, and the user's line."""


def install(module: ModuleType) -> None:
    """Wraps the loading of an optimizer's state."""
    kind: Any = module.Optimizer
    original = kind.load_state_dict

    @functools.wraps(original)
    def load_state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = numbers_of(self) if is_on(Check.RESUMED) else []
        result = original(self, *args, **kwargs)
        if before:
            safely(Check.RESUMED, _note, self, before)
        return result

    kind.load_state_dict = load_state_dict
    early_steps.looking(Check.RESUMED, look)


def numbers_of(optimizer: Any) -> Numbers:
    """The numbers of each group that are plain numbers."""
    groups = getattr(optimizer, "param_groups", ())
    return [
        {name: group[name] for name in NAMES if isinstance(group.get(name), int | float)}
        for group in groups
    ]


def _note(optimizer: Any, before: Numbers) -> None:
    """Records a load of the script's."""
    if is_called_by(*FRAMEWORKS):
        _loaded.pop(optimizer, None)
    else:
        first = _loaded[optimizer][0] if optimizer in _loaded else before
        _loaded[optimizer] = first, numbers_of(optimizer), user_place()


def look(optimizer: Any, step: int) -> None:
    """Judges what the first step uses."""
    if step != 1 or optimizer not in _loaded or not optimizer.state:
        return
    asked, loaded, where = _loaded.pop(optimizer)
    has_schedule = any(
        getattr(one, "optimizer", None) is optimizer for one in list(schedules.places)
    )
    if has_schedule:  # it sets the rate again
        for group in asked:
            group.pop("lr", None)
    used = numbers_of(optimizer)
    finding = resumed_parts.overruled(type(optimizer).__name__, asked, loaded, used)
    report(finding, where=where)
