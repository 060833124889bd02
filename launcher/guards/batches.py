"""Observes training batches: their samples and tokens, a text's length, the kind of loss."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from ..core.choices import Loss
from ..core.settings import Setting
from ..evidence.observations import observations
from .model_facts import base_of, see_no_checkpointing
from .step_times import times

PREFIX = "transformers."
TRAINERS = ("transformers", "trl")
"""Packages whose Trainers compute the model's loss, or one made from it."""


def loss_of(trainer: Any, model: Any, arguments: Any, custom: Any) -> str | None:
    """The kind of loss; None if other code than transformers' may compute it.

    A custom loss is a Trainer's method or argument (transformers/trainer.py, `compute_loss`).

    Args:
        trainer: the Trainer, which may not be constructed yet.
        model: its model.
        arguments: its TrainingArguments.
        custom: the loss function passed to it, if any.
    """
    is_replaced = (
        custom is not None
        or getattr(arguments, "label_smoothing_factor", None)
        or getattr(arguments, "use_liger_kernel", False)
        or not _is_of_transformers(type(trainer).compute_loss)
    )
    return None if is_replaced else loss_of_labels(model)


def loss_of_labels(model: Any) -> str | None:
    """The kind of loss a model computes from labels; None if it may be custom.

    Liger's fused loss replaces `forward` of the model or its class. peft's adapters use the loss of
    their base model.
    """
    model = base_of(model)
    is_plain = (
        "forward" not in vars(model)
        and _is_of_transformers(type(model).forward)
        and _is_of_transformers(type(model))
    )
    is_language_model = type(model).__name__.endswith("LM")
    return Loss.CROSS_ENTROPY.value if is_plain and is_language_model else None


def _is_of_transformers(part: Any) -> bool:
    """Whether transformers defines a function or class."""
    return str(inspect.unwrap(part).__module__).startswith(PREFIX)


def watch(engine: Any) -> None:
    """Observes an engine's first batch, and the size of every batch.

    The hook is removed if a Trainer reports the sizes itself.
    """
    is_first = True

    def see(module: Any, _args: Any, kwargs: Mapping[str, Any]) -> None:
        nonlocal is_first
        if not module.training:
            return
        if times.has_trainer:
            handle.remove()
        else:
            with suppress(Exception):  # a batch may be anything
                times.batch(*size_of(kwargs, int(engine.train_micro_batch_size_per_gpu())))
        if is_first:
            is_first = False
            with suppress(AttributeError, TypeError):  # of an unusual model
                see_no_checkpointing(engine.module)
                if kwargs.get("labels") is not None:
                    observations.see(loss=loss_of_labels(engine.module))
                see_length(kwargs)

    handle = engine.register_forward_pre_hook(see, with_kwargs=True)


def see_length(batch: Mapping[str, Any]) -> None:
    """Notes the text length of rank 0's batch, in tokens.

    Packed texts count with their share of the row; both texts of a pair have the length of a row.
    """
    words = batch.get("input_ids")
    if words is None or words.ndim != 2 or os.environ.get("RANK") != "0":
        return
    texts = int(observations.observed.get(Setting.MICRO_BATCH) or len(words))
    observations.see(sequence_length=min(words.shape[1], words.numel() // texts) or None)


def size_of(batch: Mapping[str, Any], micro_batch: int) -> tuple[int, int]:
    """Samples and tokens of a batch, with padding; 0 if unknown.

    Args:
        batch: the model's arguments, by name.
        micro_batch: the configured number of samples.

    A row of packed texts counts as `micro_batch` samples. Both texts of a preference pair count as
    one sample, whether they are separate rows or separate arguments.
    """
    named = {key: value for key, value in batch.items() if key.endswith("input_ids")}
    texts = [value for value in named.values() if getattr(value, "ndim", 0) == 2]
    tokens = sum(int(text.numel()) for text in texts)
    if len(named) > 1 or not texts:
        shapes: Iterator[Any] = (getattr(value, "shape", ()) for value in batch.values())
        return next((int(shape[0]) for shape in shapes if len(shape)), 0), tokens
    rows = int(texts[0].shape[0])
    is_one_row = rows == 1 and ("position_ids" in batch or "cu_seq_lens_q" in batch)
    return micro_batch if is_one_row or rows == 2 * micro_batch else rows, tokens
