"""Checks of what the first passes give to a transformers model: padding, positions, labels."""

from __future__ import annotations

from collections.abc import Sequence

from .finding import BATCHES, Check, Fault, Finding

BINARY = 10
"""Batches whose labels are inspected for two classes."""
LABELS = 32
"""Minimum labels to call them classes."""

POOLED_PADDING = Fault(
    "the classifier reads padding: the last token that isn't config.pad_token_id, which it takes "
    "for the end of a text, is one that attention_mask leaves out",
    "Set model.config.pad_token_id to the tokenizer's pad_token_id",
    certain=True,
    least=1,
)
"""The position that a decoder with a classifier reads is padding."""
ATTENDED_PADDING = Fault(
    "padding is attended: texts end in several pad tokens that no attention_mask leaves out, so "
    "that a text's output depends on its padding",
    "Give the model the tokenizer's attention_mask, or (input_ids != pad_token_id).long()",
    least=BATCHES - 1,
)
"""An encoder sees trailing padding."""
ATTENDED_BEFORE = Fault(
    "padding is attended: texts begin with several pad tokens that no attention_mask leaves out, "
    "and each later token sees them",
    "Give the model the tokenizer's attention_mask, or pad on the right",
    least=BATCHES - 1,
)
"""A decoder sees leading padding."""
SHIFTED_POSITIONS = Fault(
    "the texts are trained at shifted positions: padding is on the left, and without position_ids "
    "the model counts it, though generate() doesn't",
    "Pad on the right to train, or give position_ids: (attention_mask.cumsum(-1) - 1).clamp(min=0)",
    least=BATCHES - 1,
)
"""A model with learned positions counts padding."""
FAULTS = (POOLED_PADDING, ATTENDED_PADDING, ATTENDED_BEFORE, SHIFTED_POSITIONS)
"""The faults of padding, in the order of their facts."""


def unbalanced(coefficient: float, routers: int) -> Finding | None:
    """Reports experts whose routers are trained without the loss that balances them.

    Args:
        coefficient: the configuration's weight of the loss.
        routers: parameters of routers that are trained.
    """
    if not coefficient > 0 or not routers:
        return None
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence="the experts are trained without their balancing loss: output_router_logits is "
        f"False, so that router_aux_loss_coef={coefficient:g} does nothing",
        advice="Set model.config.output_router_logits to True",
        step=1,
    )


def regression(labels: int, ones: int, others: int) -> Finding | None:
    """Reports two classes that a model with one output learns as numbers.

    Args:
        labels: how many were looked at.
        ones: how many of them are 1.
        others: how many are neither 0 nor 1.
    """
    if labels < LABELS or others or not 0 < ones < labels:
        return None
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence="two classes are learnt as numbers: with num_labels=1 the model's loss is the "
        f"mean squared error, and each of {labels} labels is 0 or 1",
        advice="Set num_labels=2, or problem_type to multi_label_classification with labels of "
        "shape (n, 1)",
        step=BINARY,
    )


def judged(batches: Sequence[Sequence[bool]]) -> list[Finding | None]:
    """Judges the padding.

    Args:
        batches: for each of the first ones, whether it shows each of `FAULTS`.
    """
    shown = zip(*batches, strict=True)
    return [fault.judged(each) for fault, each in zip(FAULTS, shown, strict=True)]
