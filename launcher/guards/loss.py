"""Whether a loss is computed as transformers does it, from all logits at once."""

from __future__ import annotations

import inspect
from typing import Any

from ..core.choices import Loss

OWN = "transformers."


def loss_of(trainer: Any, model: Any, arguments: Any, own: Any) -> str | None:
    """The kind of loss; None if code that isn't transformers' may compute it otherwise.

    A loss of the user's is a method or an argument of the Trainer (transformers/trainer.py,
    `compute_loss`).

    Args:
        trainer: the Trainer, which need not be constructed yet.
        model: its model.
        arguments: its TrainingArguments.
        own: the loss that it is given; None for none.
    """
    is_replaced = (
        own is not None
        or getattr(arguments, "label_smoothing_factor", None)
        or getattr(arguments, "use_liger_kernel", False)
        or not _is_own(type(trainer).compute_loss)
    )
    return None if is_replaced else loss_of_labels(model)


def loss_of_labels(model: Any) -> str | None:
    """The kind of loss that a model makes of labels; None if it may be another.

    A fused loss of Liger's replaces `forward` of the model or of its class. Adapters of peft's
    leave the loss to the model that they are in.
    """
    model = model.get_base_model() if hasattr(model, "get_base_model") else model
    is_plain = (
        "forward" not in vars(model) and _is_own(type(model).forward) and _is_own(type(model))
    )
    is_language_model = type(model).__name__.endswith("LM")
    return Loss.CROSS_ENTROPY.value if is_plain and is_language_model else None


def _is_own(part: Any) -> bool:
    """Whether a function or class is transformers'."""
    return str(inspect.unwrap(part).__module__).startswith(OWN)
