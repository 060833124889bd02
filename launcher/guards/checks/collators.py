"""Detects transformers' collator that replaces labels which the samples have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import wrapt

from ...checks import labelled
from ...checks.finding import Check
from .reporting import is_on, report_here, safely
from .texts import IGNORED

HOOKED = ("transformers.data.data_collator",)
LOOKED = 3
"""Batches to inspect."""


def install(module: ModuleType) -> None:
    """Wraps the collator that replaces labels."""
    looked = 0

    def collate(wrapped: Any, collator: Any, args: Any, kwargs: Any) -> Any:
        nonlocal looked
        if looked == LOOKED or collator.mlm or type(collator).__module__ != module.__name__:
            return wrapped(*args, **kwargs)
        looked += 1
        samples = args[0] if args else kwargs["examples"]
        masks: list[tuple[int, int]] = []  # taken before: the collator may change its samples
        if is_on(Check.DATA):
            safely(Check.DATA, lambda: masks.extend(map(_mask_of, samples)))
        batch = wrapped(*args, **kwargs)
        if masks:
            safely(Check.DATA, _look, masks, batch)
        return batch

    wrapt.wrap_function_wrapper(module, "DataCollatorForLanguageModeling.torch_call", collate)


def _mask_of(sample: Any) -> tuple[int, int]:
    """The number of a sample's labels, and of those that it leaves out of the loss."""
    import torch

    labels = sample.get("labels") if isinstance(sample, Mapping) else None
    if labels is None:
        return 0, 0
    tensor = torch.as_tensor(labels)
    return tensor.numel(), int((tensor == IGNORED).sum())


def _look(masks: Sequence[tuple[int, int]], batch: Any) -> None:
    """Compares the labels that are left out before and after collating."""
    from torch.utils.data import get_worker_info

    if get_worker_info() is not None:  # a loader's process has no way to the launcher
        return
    labels = batch["labels"]
    padding = labels.numel() - sum(count for count, _ in masks)
    left = int((labels == IGNORED).sum()) - padding
    before = sum(out for _, out in masks)
    report_here(labelled.replaced_labels(before, left))
