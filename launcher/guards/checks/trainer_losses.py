"""Checks what a Trainer's loss is given: fields of the samples, their labels, the number of items.

In one step, the inputs note which missing fields are asked for. In one pass, the number is a tensor
that notes whether any operation uses it.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from math import isclose
from types import ModuleType
from typing import Any

import wrapt

from ...checks import data, divided
from ...checks.finding import Check
from ...workload.script.losses import ACCUMULATION
from ..batches import TRAINERS
from ..callers import place, place_of, user_place
from ..model_facts import base_of
from . import dtypes
from .graphs import factor_of_mean
from .reporting import is_on, report, report_here, safely
from .texts import IGNORED

TRAINER, COLLATOR = "transformers.trainer", "transformers.data.data_collator"
HOOKED = (TRAINER, COLLATOR)
LOOKED = 3
"""Batches to inspect."""
INPUTS, COUNT = 1, 2
"""Places of these among the arguments with which the Trainer calls its `training_step`."""


def install(module: ModuleType) -> None:
    """Wraps each Trainer's first step, and the collator that replaces labels."""
    if module.__name__ == TRAINER:
        _watch_steps(module)
    else:
        _watch_labels(module)


def _watch_steps(module: ModuleType) -> None:
    """Replaces arguments of each Trainer's first step by those that note how they are used."""
    left = {
        COUNT: (Check.DIVIDED, _is_left_to_the_loss, _use_noted),
        INPUTS: (Check.DATA, _may_miss, _fields_noted),
    }

    def step(wrapped: Any, trainer: Any, args: Any, kwargs: Any) -> Any:
        with ExitStack() as ends:
            for number, (check, is_apt, noted) in list(left.items()):
                with suppress(Exception):  # an unusual Trainer
                    if len(args) > number and is_on(check) and is_apt(trainer, args[number]):
                        noting = ends.enter_context(noted(trainer, args[number]))
                        args = (*args[:number], noting, *args[number + 1 :])
                        del left[number]
            return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(module, "Trainer.training_step", step)


def _may_miss(trainer: Any, inputs: Any) -> bool:
    """Whether the Trainer drops fields, and its loss is the script's."""
    compute_loss = type(trainer).compute_loss
    return (
        trainer.args.remove_unused_columns
        and type(inputs) is dict  # others may not be made of a dict
        and compute_loss.__module__.partition(".")[0] not in TRAINERS
    )


@contextmanager
def _fields_noted(trainer: Any, inputs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The inputs; their copies note asked fields too, as the Trainer moves them to a device."""
    requested: set[str] = set()

    class Noting(dict[str, Any]):
        def get(self, key: Any, *default: Any) -> Any:
            requested.add(key)
            return super().get(key, *default)

        def pop(self, key: Any, *default: Any) -> Any:
            requested.add(key)
            return super().pop(key, *default)

        def __contains__(self, key: object) -> bool:
            if isinstance(key, str):
                requested.add(key)
            return bool(super().__contains__(key))

    yield Noting(inputs)
    safely(Check.DATA, _judge_fields, trainer, requested.difference(inputs))


def _judge_fields(trainer: Any, missed: set[str]) -> None:
    """Reports fields that only the samples have."""
    if not missed:
        return
    fields = _fields_of(trainer.train_dataset)
    function = inspect.unwrap(type(trainer).compute_loss)
    names = sorted(missed & fields)
    report(data.dropped(names, function.__qualname__), where=place_of(function))


def _fields_of(dataset: Any) -> set[str]:
    """The fields of a data set's samples; a sample is drawn if it has no other list of them."""
    if isinstance(names := getattr(dataset, "column_names", None), list):
        return set(names)
    if not hasattr(dataset, "__len__"):
        return set()
    with _draws_kept():
        sample = dataset[0]
    return {key for key in sample if isinstance(key, str)} if isinstance(sample, dict) else set()


@contextmanager
def _draws_kept() -> Iterator[None]:
    """Sets the host's random states back at the end."""
    import torch

    pythons, torchs, numpys = random.getstate(), torch.get_rng_state(), None
    with suppress(ImportError):
        import numpy as np

        numpys = np.random.get_state()
    try:
        yield
    finally:
        random.setstate(pythons)
        torch.set_rng_state(torchs)
        if numpys is not None:
            np.random.set_state(numpys)


def _watch_labels(module: ModuleType) -> None:
    """Wraps the collator that replaces labels, for its first batches."""
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
            safely(Check.DATA, _compare, masks, batch)
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


def _compare(masks: Sequence[tuple[int, int]], batch: Any) -> None:
    """Compares the labels that are left out before and after collating."""
    from torch.utils.data import get_worker_info

    if get_worker_info() is not None:  # a loader's process has no way to the launcher
        return
    labels = batch["labels"]
    padding = labels.numel() - sum(count for count, _ in masks)
    left = int((labels == IGNORED).sum()) - padding
    before = sum(out for _, out in masks)
    report_here(data.replaced_labels(before, left))


@contextmanager
def _factor_noted(trainer: Any) -> Iterator[list[float]]:
    """Notes by what the script's `compute_loss` multiplies a mean, as far as its graph shows."""
    factors: list[float] = []

    def noting(*args: Any, **kwargs: Any) -> Any:
        result = compute_loss(*args, **kwargs)
        with suppress(Exception):  # not a tensor, or without a graph
            factors.append(factor_of_mean(result[0] if isinstance(result, tuple) else result))
        return result

    with suppress(Exception):  # an unusual Trainer
        compute_loss = trainer.compute_loss
        if _has_own_loss(trainer) and not (dtypes.scaling or "compute_loss" in vars(trainer)):
            trainer.compute_loss = noting
    try:
        yield factors
    finally:
        with suppress(Exception):
            if vars(trainer).get("compute_loss") is noting:
                del trainer.compute_loss


def _is_left_to_the_loss(trainer: Any, count: Any) -> bool:
    """Whether a Trainer takes the loss for divided by the number of items."""
    arguments, is_passed = trainer.args, _function(trainer) is not None
    return (
        hasattr(count, "as_subclass")
        and arguments.n_gpu < 2
        and not getattr(arguments, "torch_compile", False)
        and (is_passed or bool(getattr(trainer, "model_accepts_loss_kwargs", False)))
        and getattr(trainer, "loss_is_scaled_for_ga", None) is None
        and _factor(trainer) > 1
        and (
            arguments.gradient_accumulation_steps > 1
            or is_passed
            or not _is_of_transformers(trainer)
        )
    )


def _function(trainer: Any) -> Any:
    """The `compute_loss_func` that the Trainer calls; None if it has none."""
    function = getattr(trainer, "compute_loss_func", None)
    return None if function is None or _has_own_loss(trainer) else function


def _is_of_transformers(trainer: Any) -> bool:
    """Whether the model is one of transformers.

    Many of these ignore the number (5.24: classification, masked words, T5, BART). On several ranks
    all their trainings have such gradients, so only accumulation is worth a finding.
    """
    return type(_model(trainer)).__module__.startswith("transformers.")


def _model(trainer: Any) -> Any:
    """The model without its wrappers and adapters."""
    return base_of(trainer.accelerator.unwrap_model(trainer.model))


def _factor(trainer: Any) -> int:
    """How many times too large the gradients of a mean are.

    The Trainer doesn't divide by the accumulation, and its `compute_loss` multiplies by the number
    of processes, as all their items are counted (transformers/trainer.py).
    """
    arguments = trainer.args
    is_multiplied = not _has_own_loss(trainer) and arguments.average_tokens_across_devices
    processes = trainer.accelerator.num_processes if is_multiplied else 1
    return int(arguments.gradient_accumulation_steps * processes)


def _has_own_loss(trainer: Any) -> bool:
    return not type(trainer).compute_loss.__module__.startswith("transformers.")


@contextmanager
def _use_noted(trainer: Any, count: Any) -> Iterator[Any]:
    """The number of items, as a tensor that notes its first use in an operation."""
    import torch

    class Noting(torch.Tensor):  # type: ignore[misc]
        is_used = False

        @classmethod
        def __torch_function__(
            cls, function: Any, _types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = torch.Tensor.__torch_function__(function, (), args, kwargs or {})
            if function is torch.Tensor.to and isinstance(args[0], cls):
                return result.as_subclass(cls)  # as DDP passes it on
            if getattr(function, "__name__", "") != "__get__":
                Noting.is_used = True
            return result

    with _factor_noted(trainer) as factors:
        yield count.as_subclass(Noting)
    if not Noting.is_used:
        safely(Check.DIVIDED, _judge_count, trainer, factors)


def _judge_count(trainer: Any, factors: Sequence[float]) -> None:
    """Reports the code that computes the loss, unless it seems to divide by the accumulation."""
    model = _model(trainer)
    function, name = type(model).forward, f"the loss of {type(model).__name__}"
    passed = _function(trainer)
    if passed is not None:
        function = getattr(passed, "func", passed)  # of functools.partial
        name = function.__name__
    elif _has_own_loss(trainer):
        function = type(trainer).compute_loss
        name = function.__qualname__
    lines, line = inspect.getsourcelines(function)
    file = inspect.getsourcefile(function) or ""
    steps = trainer.args.gradient_accumulation_steps
    is_divided = any(isclose(one * n, 1) for one in factors for n in (steps, _factor(trainer)))
    if factors == [1.0] or not (is_divided or any(map(ACCUMULATION.search, lines))):
        where = user_place() if "-packages/" in file else place(file, line)
        is_passed = passed is not None
        report(divided.undivided(name, _factor(trainer), is_passed=is_passed), where=where)
