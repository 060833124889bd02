"""Checks of what the first passes give to a transformers model: padding, labels, and chats.

The first losses of a loaded language model are compared with a guess's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .finding import BATCHES, Check, Fault, Finding, first_of
from .rows import MOSTLY, Row, common

BINARY = 10
"""Batches whose labels are inspected for two classes."""
LABELS = 32
"""Minimum labels to call them classes."""
LEAST = 8
"""Minimum chats to judge."""
GUESSES = 3
"""Passes whose losses are compared with a guess's."""
WORSE = 1.1
"""Times the loss of a guess at which loaded weights can't be those of the data's tokens."""

POOLED_PADDING = Fault(
    "the classifier reads padding: the last token that isn't config.pad_token_id, which it takes "
    "for the end of a text, is one that attention_mask leaves out",
    "Set model.config.pad_token_id to the tokenizer's pad_token_id",
    certain=True,
    least=1,
)
ATTENDED_PADDING = Fault(
    "padding is attended: texts end in several pad tokens that no attention_mask leaves out, so "
    "that a text's output depends on its padding",
    "Give the model the tokenizer's attention_mask, or (input_ids != pad_token_id).long()",
    least=BATCHES - 1,
)
ATTENDED_BEFORE = Fault(
    "padding is attended: texts begin with several pad tokens that no attention_mask leaves out, "
    "and each later token sees them",
    "Give the model the tokenizer's attention_mask, or pad on the right",
    least=BATCHES - 1,
)
SHIFTED_POSITIONS = Fault(
    "the texts are trained at shifted positions: padding is on the left, and without position_ids "
    "the model counts it, though generate() doesn't",
    "Pad on the right to train, or give position_ids: (attention_mask.cumsum(-1) - 1).clamp(min=0)",
    least=BATCHES - 1,
)
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
        sentence="two classes are learnt as numbers: with num_labels=1 the model's loss is the "
        f"mean squared error, and each of {labels} labels is 0 or 1",
        advice="Set num_labels=2, or problem_type to multi_label_classification with labels of "
        "shape (n, 1)",
        step=BINARY,
    )


@dataclass(slots=True)
class Chats:
    """Chats that were rendered before the training.

    Attributes:
        answered: those that end with an assistant's message.
        asking: those of them with a generation prompt behind.
        several: those with an earlier message of the assistant's.
        dropped: those of them whose text lacks a part of such a message.
        reasoned: those whose messages have thoughts in a field.
        thoughtless: those of them whose text lacks them.
        seen: calls of the function that renders chats.
    """

    answered: int = 0
    asking: int = 0
    several: int = 0
    dropped: int = 0
    reasoned: int = 0
    thoughtless: int = 0
    seen: int = 0


def prompted(chats: Chats, rows: Sequence[Row]) -> Finding | None:
    """Reports texts that end with a generation prompt, whose label counts.

    Args:
        chats: the chats rendered so far.
        rows: of the first batches.
    """
    is_usual = chats.asking >= max(LEAST, MOSTLY * chats.answered)
    final = [row for row in rows if row.final]
    is_counted = len(final) >= max(LEAST, MOSTLY * len(rows))
    if not is_usual or not is_counted or common([row.last for row in final]) is None:
        return None
    return Finding(
        Check.DATA,
        sentence="the model learns to open another turn after its answer: apply_chat_template was "
        f"called with add_generation_prompt=True for {chats.asking} chats that have their answers",
        advice="Leave add_generation_prompt out for texts that are trained",
        step=1,
    )


def shortened(chats: Chats, rows: Sequence[Row]) -> Finding | None:
    """Reports chats whose template drops parts of messages that are trained.

    Args:
        chats: the chats rendered so far.
        rows: of the first batches.
    """
    all_turns = [row for row in rows if row.spans > 1 or 0 < row.counted == row.length]
    if len(all_turns) < max(LEAST, MOSTLY * len(rows)):
        return None
    if chats.reasoned >= LEAST and chats.thoughtless == chats.reasoned:
        what = f"the thoughts (reasoning_content, thinking) of all {chats.reasoned} chats"
        advice = "Write them into the content, or take a template that has the field"
    elif chats.dropped >= max(LEAST, chats.several / 2):
        what = f"parts of earlier answers, such as thoughts, in {chats.dropped} of {chats.several} "
        what += "chats, and all turns are trained"
        advice = "Train the last turn of each chat alone, or take a template that keeps them"
    else:
        return None
    return Finding(
        Check.DATA,
        sentence=f"the chat template drops {what}",
        advice=advice,
        step=1,
    )


def unknown_markers(
    rows: Sequence[Sequence[str]], is_known: Callable[[str], bool]
) -> Finding | None:
    """Reports markers of a template that aren't tokens.

    Args:
        rows: the markers in each of some texts.
        is_known: whether a marker is a token.
    """
    markers = {marker for row in rows for marker in row}
    unknown = {marker for marker in markers if not is_known(marker)}
    shown = [row for row in rows if not unknown.isdisjoint(row)]
    if len(rows) < LEAST or len(shown) < MOSTLY * len(rows):
        return None
    return Finding(
        Check.DATA,
        sentence=f"the tokenizer doesn't know {first_of(sorted(unknown))}: the texts have them as "
        "several ordinary tokens, and generation can't stop at one",
        advice="Take the chat template of this tokenizer, or add them by add_special_tokens and "
        "resize and train the embeddings",
        step=1,
    )


def by_chance(losses: Sequence[float], tokens: int) -> Finding | None:
    """Reports loaded weights that predict worse than a guess.

    Args:
        losses: of the first passes.
        tokens: the vocabulary's size.
    """
    if len(losses) < GUESSES or tokens < 2 or not all(map(math.isfinite, losses)):
        return None
    guess = math.log(tokens)
    if min(losses) < WORSE * guess:
        return None
    return Finding(
        Check.DATA,
        sentence=f"the loaded model predicts worse than chance: its first losses are "
        f"{min(losses):.3g} or more, and a guess among its vocabulary of {tokens:,} has "
        f"{guess:.3g}",
        advice="Look at whether the tokenizer is this model's, and the labels are its tokens",
        step=1,
    )
