"""Detects calls that only return something, from statements that drop it."""

from __future__ import annotations

import dis
import functools
from collections.abc import Mapping
from functools import partial
from types import CodeType, MappingProxyType, ModuleType
from typing import Any

import wrapt

from ...checks.finding import Check, Finding
from ..callers import calling_frame
from .reporting import is_on, report_here, safely

ACCELERATOR = ("gather", "gather_for_metrics", "reduce", "pad_across_processes")
OF_DATA = ("filter", "shard", "shuffle", "skip", "take", "select", "remove_columns")
PURE: Mapping[str, tuple[Check, tuple[str, ...]]] = MappingProxyType(
    {
        "accelerate.accelerator": (
            Check.DATA,
            tuple(f"Accelerator.{name}" for name in (*ACCELERATOR, "skip_first_batches")),
        ),
        "torch.nn.modules.batchnorm": (Check.TRAINED, ("SyncBatchNorm.convert_sync_batchnorm",)),
        "peft.tuners.tuners_utils": (Check.SAVED, ("BaseTuner.merge_and_unload",)),
        "peft.tuners.lora.model": (Check.SAVED, ("LoraModel.merge_and_unload",)),
        "datasets.arrow_dataset": (Check.DATA, tuple(f"Dataset.{name}" for name in OF_DATA)),
        "datasets.iterable_dataset": (
            Check.DATA,
            tuple(f"IterableDataset.{name}" for name in OF_DATA),
        ),
    }
)
"""By module: the check, and functions that leave their arguments as they are.

`convert_sync_batchnorm` does so if the model is a norm layer, and replaces those within it.
"""
COLLECTIVES = "torch.distributed.nn.functional"
"""Collectives with gradients, which return their result, unlike those of torch.distributed."""
HOOKED = (*PURE, COLLECTIVES)
BESIDE = ("CACHE", "EXTENDED_ARG", "NOT_TAKEN")
"""Instructions of no effect."""


def install(module: ModuleType) -> None:
    """Wraps the functions that this version of the module has."""
    if module.__name__ == COLLECTIVES:
        _watch_collectives(module)
        return
    check, paths = PURE[module.__name__]
    for path in paths:
        kind, _, name = path.rpartition(".")
        if name in vars(vars(module).get(kind, object)):
            wrapt.wrap_function_wrapper(module, path, partial(_called, check))


def _watch_collectives(module: ModuleType) -> None:
    """Wraps what the collectives call: their warnings are about the line that calls them."""
    import torch

    function = torch.autograd.Function
    apply = getattr(function.apply, "__code__", None)  # built in from torch 2.15 on
    beyond = tuple({str(module.__file__), *([apply.co_filename] if apply else [])})
    for kind in list(vars(module).values()):
        if isinstance(kind, type) and issubclass(kind, function):
            forward = staticmethod(_forward(kind.forward, beyond))  # type: ignore[attr-defined]
            kind.forward = forward  # type: ignore[attr-defined]


def _forward(function: Any, beyond: tuple[str, ...]) -> Any:
    import torch

    @functools.wraps(function)
    def forward(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if not torch.compiler.is_compiling() and is_on(Check.GRADIENTS):
            safely(
                Check.GRADIENTS, _look, Check.GRADIENTS, "a torch.distributed.nn collective", beyond
            )
        return result

    return forward


def _called(check: Check, wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
    result = wrapped(*args, **kwargs)
    is_in_place = check is Check.TRAINED and result is next(iter((*args, *kwargs.values())))
    if is_on(check) and not is_in_place:
        safely(check, _look, check, wrapped.__qualname__)
    return result


def _look(check: Check, name: str, beyond: tuple[str, ...] = ()) -> None:
    frame = calling_frame(beyond)
    if frame is not None and drops_result(frame.f_code, frame.f_lasti):
        finding = Finding(
            check,
            sentence=f"the result of {name} is dropped: it returns a new object, and what it is "
            "called with stays as it was",
            advice="Assign the result, and use it from there on",
        )
        report_here(finding)


@functools.lru_cache
def drops_result(code: CodeType, offset: int) -> bool:
    """Whether the next instruction drops what the one at an offset, or its cache, has pushed."""
    later = (one.opname for one in dis.get_instructions(code) if one.offset > offset)
    return next((name == "POP_TOP" for name in later if name not in BESIDE), False)
