"""Whether a loss is computed as transformers does it, from all logits at once."""

from __future__ import annotations

import inspect
from typing import Any

from ..core.choices import Loss
from .model_facts import base_of

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
