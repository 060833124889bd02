"""Applies the preset's flags of DistributedDataParallel, and notes what it wraps."""

from __future__ import annotations

import inspect
import weakref
from types import ModuleType
from typing import Any

import wrapt

from ..core.choices import Engine
from ..core.private_names import IGNORED, SYNCS
from ..core.settings import Setting
from ..evidence.observations import Observations
from .enforced import overrides
from .model_facts import see_facts

HOOKED = ("torch.nn.parallel.distributed",)
FLAGS = (Setting.STATIC_GRAPH, Setting.FIND_UNUSED_PARAMETERS)

wrapped: weakref.WeakSet[Any] = weakref.WeakSet()
"""The instances of DistributedDataParallel that are alive."""


def install(module: ModuleType, observations: Observations) -> None:
    """Wraps the constructor of DistributedDataParallel."""
    signature = inspect.signature(module.DistributedDataParallel.__init__)

    def construct(original: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        given = signature.bind(instance, *args, **kwargs)
        given.apply_defaults()
        for setting, value in overrides().items():
            if setting in FLAGS:
                given.arguments[setting.value] = value
        observations.see(
            engine=Engine.DDP.value,
            **{flag.value: bool(given.arguments[flag.value]) for flag in FLAGS},
        )
        see_facts(given.arguments["module"], observations)
        observations.see_model(given.arguments["module"])
        original(*given.args[1:], **given.kwargs)
        wrapped.add(instance)

    wrapt.wrap_function_wrapper(module, "DistributedDataParallel.__init__", construct)


def reduced() -> set[int]:
    """Ids of the parameters whose gradients this backward pass reduces over several ranks.

    Raises:
        MissingNameError: this torch doesn't tell.
    """
    return {
        id(parameter)
        for model in wrapped
        if SYNCS.of(model) and model.process_group.size() > 1
        for name, parameter in model.module.named_parameters()
        if parameter.requires_grad and name not in IGNORED.of(model)
    }
