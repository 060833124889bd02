"""Observes the optimizer, and counts its steps for loops that have no counter of their own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ..core.settings import Optimizer
from ..evidence.observations import Observations
from ..evidence.other_models import size_of
from ..workload.readers.vocabulary import optimizer_named

HOOKED = ("torch.optim.optimizer",)
NAMED = {"torch", "deepspeed", "transformers"}
"""Packages whose classes tell by their names what they keep; bitsandbytes' take the bits later."""


def install(module: ModuleType, observations: Observations) -> None:
    """Wraps the constructor; counts the steps of the optimizer that has done the most.

    Where none has been made, nothing is counted: the loop may have an update of its own.
    """
    counts: dict[int, int] = {}
    most: int | None = None

    def begin() -> None:
        nonlocal most
        most = most or 0

    def count(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        nonlocal most
        counts[id(optimizer)] = done = counts.get(id(optimizer), 0) + 1
        most = max(most or 0, done)

    module.register_optimizer_step_post_hook(count)
    observations.count_steps(lambda: most)
    made = partial(_construct, observations, begin, [0])
    wrapt.wrap_function_wrapper(module, "Optimizer.__init__", made)


def _construct(
    observations: Observations,
    begin: Callable[[], None],
    most: list[int],
    wrapped: Any,
    instance: Any,
    args: Any,
    kwargs: Any,
) -> None:
    """Notes the optimizer that has the most elements so far, which are kept in `most`."""
    wrapped(*args, **kwargs)
    begin()
    with suppress(AttributeError, KeyError, TypeError):  # an optimizer of an unusual kind
        groups = instance.param_groups
        size = sum(size_of(parameter) for group in groups for parameter in group["params"])
        if size > most[0]:
            most[0] = size
            observations.see(optimizer=_kind(instance), fused_step=_is_fused(instance))


def _kind(optimizer: Any) -> str | None:
    """The optimizer by its states; None where its class doesn't tell."""
    home = type(optimizer).__module__.partition(".")[0]
    kind = optimizer_named(type(optimizer).__name__) if home in NAMED else None
    if kind is Optimizer.SGD and optimizer.defaults.get("momentum"):
        kind = Optimizer.LION
    return None if kind is None else kind.value


def _is_fused(optimizer: Any) -> bool | None:
    """Whether its step needs no temporaries for all parameters; None where that isn't known."""
    home = type(optimizer).__module__
    if home.startswith("torch.optim."):
        return bool(optimizer.defaults.get("fused"))
    return True if home.startswith("deepspeed.ops.") else None
