"""Tells whether a Trainer computes its loss as transformers does, from all logits at once."""

from __future__ import annotations

import inspect
from typing import Any

from ..core.settings import Loss

OWN = "transformers."


def loss_of(trainer: Any) -> str | None:
    """The kind of loss; None where code that isn't transformers' may compute it otherwise.

    A fused loss of Liger's replaces `forward` of the model's class, a loss of the user's is a
    method or an argument of the Trainer (transformers/trainer.py, `compute_loss`). Adapters of
    peft's leave the loss to the model that they are in.
    """
    arguments, model = trainer.args, trainer.model
    model = model.get_base_model() if hasattr(model, "get_base_model") else model
    own = (type(trainer).compute_loss, type(model).forward, type(model))
    is_replaced = (
        getattr(trainer, "compute_loss_func", None) is not None
        or getattr(trainer, "label_smoother", None) is not None
        or getattr(arguments, "use_liger_kernel", False)
        or "forward" in vars(model)
        or not all(inspect.unwrap(part).__module__.startswith(OWN) for part in own)
    )
    return (
        None if is_replaced or not type(model).__name__.endswith("LM") else Loss.CROSS_ENTROPY.value
    )
