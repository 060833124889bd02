"""Checks the labels of the first batches, and the texts that they belong to."""

from __future__ import annotations

from collections.abc import Sequence

from .data import BATCHES
from .finding import Check, Finding


def ignored_labels(shares: Sequence[bool], where: str) -> Finding | None:
    """Reports batches whose labels are all ignored (-100, torch's default for cross entropy).

    Args:
        shares: whether any label counts, per first batch.
        where: the user's line that trains on them.
    """
    if len(shares) < BATCHES or any(shares):
        return None
    return Finding(
        Check.DATA,
        certain=True,
        sentence=f"every label of the first {BATCHES} batches is -100, which the loss ignores: "
        "nothing is trained",
        advice="Look at how the labels are masked: the template that marks answers may not match, "
        "or the texts are cut before their answers",
        step=1,
        where=where,
    )


def trained_padding(shares: Sequence[bool], where: str) -> Finding | None:
    """Reports padding that counts in the loss; a batch of equally long texts has none.

    Args:
        shares: whether labels of padding count, per first batch.
        where: the user's line that trains on them.
    """
    if len(shares) < BATCHES or sum(shares) < BATCHES - 1:
        return None
    return Finding(
        Check.DATA,
        certain=False,
        sentence="the loss counts padding: its labels aren't -100, and the model learns to write "
        "padding after each text",
        advice="Set labels to -100 where attention_mask is 0, and where those of a model with an "
        "encoder are its pad_token_id",
        step=1,
        where=where,
    )


def begun_twice(shares: Sequence[bool], where: str) -> Finding | None:
    """Reports texts with two bos tokens.

    Args:
        shares: whether most texts begin so, per first batch.
        where: the user's line that trains on them.
    """
    if len(shares) < BATCHES or not all(shares):
        return None
    return Finding(
        Check.DATA,
        certain=False,
        sentence="most texts begin with the bos_token twice: a chat template has written it, and "
        "the tokenizer adds it again",
        advice="Tokenize what apply_chat_template has written with add_special_tokens=False",
        step=1,
        where=where,
    )


def joined_texts(shares: Sequence[bool], where: str) -> Finding | None:
    """Reports packed texts that attend to each other.

    Args:
        shares: whether a mask joins texts with positions of their own, per first batch.
        where: the user's line that trains on them.
    """
    if len(shares) < BATCHES or not any(shares):
        return None
    return Finding(
        Check.DATA,
        certain=False,
        sentence="rows hold several texts, each with position_ids from 0, but their attention_mask "
        "joins them: with one, transformers doesn't keep the texts of a row apart",
        advice="Leave attention_mask out of the batch",
        step=1,
        where=where,
    )


def shifted_labels(shares: Sequence[bool], where: str) -> Finding | None:
    """Reports labels already shifted to the next tokens, for a model whose loss shifts them.

    Args:
        shares: whether all labels are next tokens, per first batch.
        where: the user's line that trains on them.
    """
    if len(shares) < BATCHES or not all(shares):
        return None
    return Finding(
        Check.DATA,
        certain=True,
        sentence="the labels are shifted twice: each is its next token already, and the model's "
        "loss shifts them again, so that the token after the next is learnt",
        advice="Give the model labels that are its input_ids, with -100 for those that don't count",
        step=1,
        where=where,
    )


def endless_answers(shares: Sequence[bool], where: str) -> Finding | None:
    """Reports texts whose end tokens are ignored, as padding uses the same token.

    Args:
        shares: whether all ends after labels are ignored, per first batch.
        where: the user's line that trains on them.
    """
    if len(shares) < BATCHES or not all(shares):
        return None
    return Finding(
        Check.DATA,
        certain=False,
        sentence="the model doesn't learn to end a text: the label of each end-of-text token is "
        "-100, though the token before it counts",
        advice="Give the tokenizer a pad_token that isn't its eos_token, or mask labels by the "
        "attention mask",
        step=1,
        where=where,
    )


def untrained_words(shares: Sequence[bool], where: str) -> Finding | None:
    """Reports added tokens whose embeddings aren't trained.

    Args:
        shares: whether added tokens occur, per first batch.
        where: the user's line that trains on them.
    """
    if len(shares) < BATCHES or not any(shares):
        return None
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence="the batches have tokens that resize_token_embeddings has added, and their "
        "embeddings aren't trained: they stay as they were made",
        advice="Train them as well, e.g. by trainable_token_indices or modules_to_save of the "
        "LoraConfig",
        step=1,
        where=where,
    )


def replaced_labels(before: int, after: int, where: str) -> Finding | None:
    """Reports a collator that replaces labels although the samples mask some.

    Args:
        before: labels that the samples leave out of the loss.
        after: labels that the batch leaves out, beside padding.
        where: the user's line that draws it.
    """
    if not before or 2 * after > before:
        return None
    return Finding(
        Check.DATA,
        certain=True,
        sentence=f"DataCollatorForLanguageModeling replaces the samples' labels: {before} of a "
        "batch are -100, and the loss counts them all the same",
        advice="Take DataCollatorForSeq2Seq(tokenizer), which keeps labels",
        step=1,
        where=where,
    )


def smoothed_unshifted(kind: str, base: str, where: str) -> Finding:
    """Reports label smoothing on labels that aren't shifted for a decoder.

    Args:
        kind: the model's class.
        base: the class of transformers' that it derives from.
        where: the user's line that makes the Trainer.
    """
    return Finding(
        Check.DATA,
        certain=True,
        sentence=f"label smoothing doesn't shift the labels of {kind}: each token learns to repeat "
        f"itself. The Trainer shifts them for {base} and other classes of transformers', by name",
        advice=f"Name the class {base}, or set label_smoothing_factor to 0",
        where=where,
    )
