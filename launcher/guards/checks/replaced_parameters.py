"""Detects an optimizer that trains nothing, as FSDP2 has replaced its parameters."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any

import wrapt

from ...checks.finding import Check, Finding
from ...core.quantities import count_of
from ..callers import user_place
from ..fsdp import TORCHS
from .models import parameters_of
from .reporting import report

HOOKED = (TORCHS, "torch.optim.optimizer")

reported: weakref.WeakSet[Any] = weakref.WeakSet()
"""Reported optimizers, which hold only replaced parameters."""


class Replaced:
    """Parameters that `fully_shard` replaced, while referenced elsewhere."""

    def __init__(self) -> None:
        self._parameters: dict[int, weakref.ref[Any]] = {}
        self._where = ""  # the user's line that has replaced the first
        self._sound: weakref.WeakSet[Any] = weakref.WeakSet()

    def shard(self, wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        """Notes the parameters that `fully_shard` replaces."""
        given = args[0] if args else kwargs.get("module")
        modules = given if isinstance(given, list | tuple) else [given]
        before: list[Any] = []
        with suppress(AttributeError):  # not a module: torch raises
            before += _parameters_in(modules)
        result = wrapped(*args, **kwargs)
        after = {id(parameter) for parameter in _parameters_in(modules)}
        gone = {id(param): weakref.ref(param) for param in before if id(param) not in after}
        if gone and not self._where:
            self._where = user_place()
        self._parameters |= gone
        return result

    def stepped(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """Reports an optimizer that holds only replaced parameters, without gradients."""
        if not self._parameters or optimizer in self._sound:
            return
        trained = [param for param in parameters_of(optimizer) if param.requires_grad]
        if not trained or not all(map(self._is_replaced, trained)):
            self._sound.add(optimizer)
        elif all(parameter.grad is None for parameter in trained):
            self._sound.add(optimizer)
            reported.add(optimizer)
            finding = Finding(
                Check.TRAINED,
                certain=True,
                sentence=f"{type(optimizer).__name__} trains nothing: fully_shard has replaced all "
                f"of its {count_of(len(trained), 'parameter')} since it was made",
                advice="Make the optimizer after fully_shard "
                "(safe-launch explain fsdp2-optimizer-made-before)",
                step=1,
                where=self._where,
            )
            report(finding)

    def _is_replaced(self, parameter: Any) -> bool:
        reference = self._parameters.get(id(parameter))
        return reference is not None and reference() is parameter


replaced = Replaced()


def install(module: ModuleType) -> None:
    """Wraps `fully_shard` and every optimizer's first step."""
    if module.__name__ != TORCHS:
        module.register_optimizer_step_post_hook(replaced.stepped)
    elif hasattr(module, "fully_shard"):  # from torch 2.6 on
        wrapt.wrap_function_wrapper(module, "fully_shard", replaced.shard)


def _parameters_in(modules: Any) -> Iterator[Any]:
    for module in modules:
        yield from module.parameters()
