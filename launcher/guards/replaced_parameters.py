"""Notices an optimizer whose parameters FSDP2 has replaced since it was made: it trains nothing."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any

import wrapt

from ..evidence.from_exception import user_files
from ..evidence.observations import Observations

TORCHS = "torch.distributed.fsdp"
HOOKED = (TORCHS, "torch.optim.optimizer")


class Replaced:
    """The parameters that `fully_shard` has replaced by its own, as far as somebody holds them."""

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        self._parameters: dict[int, weakref.ref[Any]] = {}
        self._calls: list[tuple[str, int]] = []  # files and lines that led to it, innermost first
        self._sound: weakref.WeakSet[Any] = weakref.WeakSet()

    def shard(self, wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        """Notes which parameters `fully_shard` replaces."""
        given = args[0] if args else kwargs.get("module")
        modules = given if isinstance(given, list | tuple) else [given]
        before: list[Any] = []
        with suppress(AttributeError):  # no module: torch says so
            before += _parameters_of(modules)
        result = wrapped(*args, **kwargs)
        after = {id(parameter) for parameter in _parameters_of(modules)}
        gone = {id(one): weakref.ref(one) for one in before if id(one) not in after}
        if gone and not self._calls:
            self._calls = list(_calls())
        self._parameters |= gone
        return result

    def stepped(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """Tells of an optimizer that has replaced parameters alone, and gradients for none."""
        if not self._parameters or optimizer in self._sound:
            return
        held = [each for group in optimizer.param_groups for each in group["params"]]
        trained = [parameter for parameter in held if parameter.requires_grad]
        if not trained or not all(map(self._is_replaced, trained)):
            self._sound.add(optimizer)
        elif all(parameter.grad is None for parameter in trained):
            self._sound.add(optimizer)
            self._observations.remark(
                f"an optimizer ({type(optimizer).__name__}) trains nothing: it was made of "
                f"parameters that fully_shard{self._where()} has replaced since. Make it after "
                "fully_shard (safe-launch explain fsdp2-optimizer-made-before)"
            )

    def _is_replaced(self, parameter: Any) -> bool:
        reference = self._parameters.get(id(parameter))
        return reference is not None and reference() is parameter

    def _where(self) -> str:
        """The user's own line from which the first was replaced."""
        own = set(user_files())
        places = (f" ({file}:{line})" for file, line in self._calls if file in own)
        return next(places, "")


_replaced = functools.cache(Replaced)


def install(module: ModuleType, observations: Observations) -> None:
    """Wraps `fully_shard`, and looks at every optimizer's first step."""
    replaced: Replaced = _replaced(observations)
    if module.__name__ != TORCHS:
        module.register_optimizer_step_post_hook(replaced.stepped)
    elif hasattr(module, "fully_shard"):  # from torch 2.6 on
        wrapt.wrap_function_wrapper(module, "fully_shard", replaced.shard)


def _parameters_of(modules: Any) -> Iterator[Any]:
    for module in modules:
        yield from module.parameters()


def _calls() -> Iterator[tuple[str, int]]:
    """File and line of the calls that are under way, innermost first."""
    frame = inspect.currentframe()
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
