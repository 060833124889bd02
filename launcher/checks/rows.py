"""Checks of the texts in a decoder's first batches: their answers, and how they begin and end.

Unless stated otherwise, rows are those of the first batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..core.quantities import count_of
from .finding import Check, Fault, Finding

ROWS = 16
"""Minimum rows to judge."""
MOSTLY = 0.9
"""Least share of rows that are alike."""
UNANSWERED = 0.1
"""Least share of rows without a counted label for a finding."""
ANSWER = 3
"""Labels that most rows count at least, unless they are a class or a number."""

STARTED_TWICE = Fault(
    "the decoder starts twice: the labels begin with decoder_start_token_id, and the model puts it "
    "before them again",
    "Remove the first label if it is model.config.decoder_start_token_id",
    certain=True,
)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a batch; tokens are -1 if there is none.

    Attributes:
        length: its tokens, without padding.
        counted: its labels that aren't -100.
        spans: runs of such labels.
        begin: its first token.
        before: the token before the first counted label.
        first: the first counted label.
        last: the last counted label.
        second_last: the counted label before it.
        final: 1 if the last counted label is that of the last token, else 0.
        ends: its end-of-text tokens.
        early_ends: those before the first counted label and the token before it.
        restarts: end-of-text tokens that are followed by the row's first token.
        added: counted labels that the script has added to a tokenizer.
    """

    length: int
    counted: int
    spans: int
    begin: int
    before: int
    first: int
    last: int
    second_last: int
    final: int
    ends: int
    early_ends: int
    restarts: int
    added: int = 0


def _shares(rows: Sequence[Row], count: int) -> bool:
    return len(rows) >= ROWS and count >= MOSTLY * len(rows)


def common(tokens: Sequence[int]) -> int | None:
    """The token that nearly all rows share; None if they differ."""
    ((token, count),) = Counter(tokens).most_common(1) or [(-1, 0)]
    return token if token >= 0 and count >= MOSTLY * len(tokens) else None


def answered(rows: Sequence[Row]) -> list[Row]:
    """The rows that count at least a short text of labels."""
    return [row for row in rows if row.counted >= ANSWER]


def endless(rows: Sequence[Row]) -> Finding | None:
    """Reports texts of different lengths none of which has an end."""
    texts = answered(rows)
    longest = max((row.length for row in texts), default=0)
    whole = [row for row in texts if row.length < longest]
    if not _shares(rows, len(texts)) or any(row.ends for row in rows):
        return None
    lengths, lasts = {row.length for row in texts}, {row.last for row in texts}
    is_varied = len(lengths) >= 3 and len(whole) >= len(texts) / 2
    if not is_varied or len(lasts) < 3 or not all(row.final for row in texts):
        return None
    return Finding(
        Check.DATA,
        sentence=f"the model doesn't learn to end a text: none of the first {len(rows)} texts has "
        f"an end-of-text token, though their lengths differ, from {min(lengths)} to "
        f"{count_of(longest, 'token')}",
        advice="Append tokenizer.eos_token_id to each text or answer",
        step=1,
    )


def other_end(end: str, saved: Sequence[str]) -> Finding:
    """Reports that texts end with another token than the one that generation stops at.

    Args:
        end: the special token that nearly all texts end with.
        saved: the tokens at which generation stops.
    """
    return Finding(
        Check.TRAINED,
        sentence=f"generation won't stop where the trained texts end: they end with {end}, and the "
        f"model's generation_config and config stop at {' and '.join(saved)}",
        advice=f"Set model.generation_config.eos_token_id (and model.config's) to the id of {end}",
        step=1,
    )


def unanswered(rows: Sequence[Row]) -> Finding | None:
    """Reports rows none of whose labels counts, beside others."""
    rows = [row for row in rows if row.length]
    without = [row for row in rows if not row.counted]
    is_some = len(without) >= max(3, UNANSWERED * len(rows)) and len(without) < len(rows)
    if len(rows) < ROWS or not is_some:
        return None
    longest = max(row.length for row in rows)
    answered_shorter = any(row.length < longest for row in rows if row.counted)
    is_cut = answered_shorter and all(row.length == longest for row in without)
    why = f", all of them cut at {count_of(longest, 'token')}" if is_cut else ""
    return Finding(
        Check.DATA,
        sentence=f"a part of the texts isn't trained: {len(without)} of the first {len(rows)} have "
        f"no label that counts{why}",
        advice="Raise the maximum length, or cut the prompts and not the answers"
        if is_cut
        else "Look at how their labels are masked: the template that marks answers may not match",
        step=1,
    )


def begun_answers(rows: Sequence[Row], begin: int | None) -> Finding | None:
    """Reports answers that begin with the start-of-text token, behind a prompt.

    Args:
        rows: of the first batches.
        begin: the start-of-text token, if it is no end or padding.
    """
    behind = [row for row in rows if row.before >= 0 and row.first == begin]
    if begin is None or not _shares(rows, len(behind)):
        return None
    return Finding(
        Check.DATA,
        sentence="the answers begin with the bos_token, behind their prompts: the model learns to "
        "write it",
        advice="Tokenize the answers with add_special_tokens=False",
        step=1,
    )


def ended_prompts(rows: Sequence[Row], ends: Collection[int], begin: int | None) -> Finding | None:
    """Reports prompts that end with the end-of-text token, as their answers do.

    Args:
        rows: of the first batches.
        ends: the end-of-text tokens.
        begin: the start-of-text token, if it isn't an end.
    """
    ended = [
        row
        for row in answered(rows)
        if row.before in ends and row.last in ends and not row.early_ends and row.spans == 1
    ]
    if begin is None or not _shares(rows, len(ended)):
        return None
    return Finding(
        Check.DATA,
        sentence="the prompts end with the eos_token, and so do the answers: the model learns to "
        "answer only behind an end of text, which a prompt at inference may not have",
        advice="Tokenize the prompts without it, e.g. with add_special_tokens=False",
        step=1,
    )


def joined(rows: Sequence[Row]) -> Finding | None:
    """Reports rows of several answers that see one another.

    Args:
        rows: of the first batches, without position_ids that restart.
    """
    longest = max((row.length for row in rows), default=0)
    packed = [row for row in rows if row.spans >= 2 and row.restarts >= row.spans - 1]
    full = [row for row in packed if row.length >= MOSTLY * longest]
    if not _shares(rows, len(full)) or sum(row.spans for row in rows) < 3 * len(rows):
        return None
    return Finding(
        Check.DATA,
        sentence="rows hold several prompts with their answers, each behind an end-of-text token, "
        "and nothing keeps them apart: an answer is trained with the texts before it in sight",
        advice="Give each text position_ids from 0, and leave attention_mask out of the batch",
        step=1,
    )


def unknown_rows(count: int, examples: str) -> Finding | None:
    """Reports added tokens whose rows of a frozen embedding stay as they are.

    Args:
        count: of the rows with such labels.
        examples: the tokens.
    """
    if count < 3:
        return None
    return Finding(
        Check.TRAINED,
        sentence=f"the labels have {examples}, which the script has added to the tokenizer, and "
        "their embeddings aren't trained: they stay as they were made",
        advice="Train them as well, e.g. by trainable_token_indices or modules_to_save of the "
        "LoraConfig",
        step=1,
    )
