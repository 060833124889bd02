"""Detects optimizers' states that torch.distributed.checkpoint leaves in the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import wrapt

from ...checks import resumed
from ...checks.finding import Check
from .reporting import is_on, report_here, safely

HOOKED = ("torch.distributed.checkpoint.default_planner",)
DEPTH = 3
"""Maximum depth of an optimizer's state dict in a loaded object."""


def install(module: ModuleType) -> None:
    """Wraps the planner of a load, which gets the checkpoint's keys."""

    def planning(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        if is_on(Check.RESUMED):
            arguments = dict(zip(("state_dict", "metadata"), args, strict=False)) | kwargs
            safely(Check.RESUMED, _look, arguments.get("state_dict"), arguments.get("metadata"))
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(module, "DefaultLoadPlanner.set_up_planner", planning)


def _look(states: Any, metadata: Any) -> None:
    for path in _without_states(states, ()):
        prefix = ".".join((*path, "state", ""))
        count = sum(str(key).startswith(prefix) for key in metadata.state_dict_metadata)
        report_here(resumed.left_in_checkpoint(prefix[:-1], count))


def _without_states(states: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Paths of optimizers' state dicts that have no states."""
    if not isinstance(states, Mapping) or len(path) > DEPTH:
        return
    if "param_groups" in states and states.get("state") == {}:
        yield path
    for name, value in states.items():
        yield from _without_states(value, (*path, str(name)))
