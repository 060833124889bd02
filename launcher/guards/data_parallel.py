"""Applies the preset's flags of DistributedDataParallel, and sees what it wraps."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import wrapt

from ..settings import Engine, Setting
from . import sightings

HOOKED = ("torch.nn.parallel.distributed",)
FLAGS = (Setting.STATIC_GRAPH, Setting.FIND_UNUSED_PARAMETERS)


def install(module: ModuleType) -> None:
    """Wraps the constructor of DistributedDataParallel."""
    signature = inspect.signature(module.DistributedDataParallel.__init__)

    def construct(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        given = signature.bind(instance, *args, **kwargs)
        given.apply_defaults()
        for setting, value in sightings.overrides().items():
            if setting in FLAGS:
                given.arguments[setting.value] = value
        sightings.see(
            engine=Engine.DDP.value,
            **{flag.value: bool(given.arguments[flag.value]) for flag in FLAGS},
        )
        sightings.see_model(given.arguments["module"])
        return wrapped(*given.args[1:], **given.kwargs)

    wrapt.wrap_function_wrapper(module, "DistributedDataParallel.__init__", construct)
