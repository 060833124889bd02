"""Checks that batches differ between steps and ranks, and the labels and texts of the first."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.errors import EXPLAINED
from ..core.quantities import count_of
from .finding import BATCHES, Check, Fault, Finding, first_of

COUNTED_TWICE = Fault(
    "the evaluation counts {padded} of {count:,}: DistributedSampler repeats some, so that each "
    "rank has as many",
    "Leave the last results of a rank with repeated samples out: rank r has "
    "len(range(r, len(data), world_size)); accelerate's gather_for_metrics does so",
)
"""An evaluation of `count` samples counts those which a sampler repeats, `padded` samples."""
SKIPPED_AGAIN = Fault(
    "the loader of skip_first_batches is used for another epoch: its first {count} batches are "
    "skipped in each",
    "Use it for the resumed epoch alone, and the loader itself in later ones",
    certain=True,
)
"""A second epoch lacks the batches that were to be skipped once."""
SAME_ORDER = Fault(
    "a DistributedSampler orders the samples as in the last epoch, and gives each rank the same "
    "part of them: its epoch is still {epoch}",
    f"Call sampler.set_epoch(epoch) before each epoch ({EXPLAINED})",
)
"""A sampler shuffles two epochs alike."""
DRAWN_AGAIN = Fault(
    "the loop draws the same random values in each step: it sets the seed again",
    "Set the seed once, before the loop",
)
"""A loop draws random values again in the next step."""
SMOOTHED_UNSHIFTED = Fault(
    "label smoothing doesn't shift the labels of {kind}: each token learns to repeat itself. The "
    "Trainer shifts them for {base} and other classes of transformers', by name",
    "Name the class {base}, or set label_smoothing_factor to 0",
    certain=True,
)
"""Label smoothing knows a decoder of transformers', but not the class that derives from it."""


def dropped(fields: Sequence[str], function: str) -> Finding | None:
    """Reports fields of the samples that a loss asks for and a Trainer drops.

    Args:
        fields: their names.
        function: the qualified name of the loss.
    """
    if not fields:
        return None
    return Finding(
        Check.DATA,
        certain=False,
        sentence=f"{function} asks for {first_of(fields)}, which the samples have and the Trainer "
        "drops, as the model's forward doesn't take it",
        advice="Set remove_unused_columns=False",
        step=1,
    )


def read_by_all(digests: Sequence[str], workers: int) -> Finding | None:
    """Reports a stream that each worker process of a loader reads as a whole.

    Args:
        digests: of an iterator's first batches, which it takes from one worker after the other.
        workers: number of worker processes.
    """
    rounds = [{*digests[:workers]}, {*digests[workers : 2 * workers]}]
    is_same = all(len(drawn) == 1 for drawn in rounds) and rounds[0] != rounds[1]
    if len(digests) < 2 * workers or not is_same or "" in digests:
        return None
    return Finding(
        Check.DATA,
        certain=True,
        sentence=f"each of a loader's {workers} worker processes reads the whole stream: every "
        f"batch comes {workers} times in a row",
        advice="Divide the samples in the IterableDataset's __iter__ by "
        "torch.utils.data.get_worker_info(), or take one worker",
        step=1,
    )


def same_batch(digests: Sequence[str], steps: Sequence[int]) -> Finding | None:
    """Reports the same batch repeated with steps in between.

    Args:
        digests: of the first batches, in order; empty for batches that prove nothing.
        steps: optimizer steps before each batch.
    """
    last = digests[-BATCHES:]
    is_same = len(last) == BATCHES and len({*last}) == 1 and bool(last[0])
    if not is_same or len({*steps[-BATCHES:]}) < 2:  # a look at the data before the training
        return None
    return Finding(
        Check.DATA,
        certain=False,
        sentence=f"the same batch was drawn {BATCHES} times in a row, with a step in between, of a "
        "data set that has others",
        advice="A loader that is restarted in every step gives its first batch: keep its iterator",
        step=steps[-1] + 1,
    )


def judgements(faults: Sequence[Fault], batches: Sequence[Sequence[bool]]) -> list[Finding | None]:
    """Judges faults.

    Args:
        faults: those that a batch is asked for.
        batches: whether each of the first ones shows each of them.
    """
    shown = zip(*batches, strict=True)
    return [fault.judged(each) for fault, each in zip(faults, shown, strict=True)]


IGNORED_LABELS = Fault(
    f"every label of the first {BATCHES} batches is -100, which the loss ignores: nothing is "
    "trained",
    "Look at how the labels are masked: the template that marks answers may not match, or the "
    "texts are cut before their answers",
    certain=True,
)
"""All labels are -100, torch's default for cross entropy."""
TRAINED_PADDING = Fault(
    "the loss counts padding: its labels aren't -100, and the model learns to write padding after "
    "each text",
    "Set labels to -100 where attention_mask is 0, and where those of a model with an encoder are "
    "its pad_token_id",
    least=BATCHES - 1,
)
"""Labels of padding count in the loss; a batch of equally long texts has none."""
SHIFTED_LABELS = Fault(
    "the labels are shifted twice: each is its next token already, and the model's loss shifts "
    "them again, so that the token after the next is learnt",
    "Give the model labels that are its input_ids, with -100 for those that don't count",
    certain=True,
)
"""All labels are the next tokens, for a model whose loss shifts them."""
ENDLESS_ANSWERS = Fault(
    "the model doesn't learn to end a text: the label of each end-of-text token is -100, though "
    "the token before it counts",
    "Give the tokenizer a pad_token that isn't its eos_token, or mask labels by the attention mask",
)
"""All ends after labels are ignored, as padding uses the same token."""
CUT = 0.05
"""Least share of texts that are cut for a finding."""
UNTRAINED_WORDS = Fault(
    "the batches have tokens that resize_token_embeddings has added, and their embeddings aren't "
    "trained: they stay as they were made",
    "Train them as well, e.g. by trainable_token_indices or modules_to_save of the LoraConfig",
    least=1,
    check=Check.TRAINED,
)
"""Added tokens occur, and their embeddings aren't trained."""
BEGUN_TWICE = Fault(
    "most texts begin with the bos_token twice: a chat template has written it, and the tokenizer "
    "adds it again",
    "Tokenize what apply_chat_template has written with add_special_tokens=False",
)
"""Most texts have two bos tokens."""
JOINED_TEXTS = Fault(
    "rows hold several texts, each with position_ids from 0, but their attention_mask joins them: "
    "with one, transformers doesn't keep the texts of a row apart",
    "Leave attention_mask out of the batch",
    least=1,
)
"""A mask joins packed texts that have separate positions."""

PADDING_IN_LOSS = Fault(
    "the loss counts padding: its labels aren't left out, and the model learns to write padding "
    "after each text",
    "Set the labels of padding to -100, or give the loss its ignore_index",
    least=BATCHES - 1,
)
"""The script's loss counts labels of tokens whose mask is 0, or several of padding in a row."""
UNSHIFTED_LABELS = Fault(
    "the labels aren't shifted: each is the token of its place, which the model has as its input, "
    "and learns to repeat",
    "Compare logits[:, :-1] with labels[:, 1:]",
)
"""The script's loss of a decoder compares outputs with their inputs."""
SHIFTED_TWICE = Fault(
    "the labels are shifted twice: each is the token after the next",
    "Shift either in the data or in the loss",
)
"""The script's loss of a decoder shifts labels that are shifted already."""


def replaced_labels(before: int, after: int) -> Finding | None:
    """Reports a collator that replaces labels although the samples mask some.

    Args:
        before: labels that the samples leave out of the loss.
        after: labels that the batch leaves out, beside padding.
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
    )


def cut(count: int, texts: int, length: int) -> Finding | None:
    """Reports texts that are cut at a length.

    Args:
        count: how many are.
        texts: how many were looked at.
        length: the length of those that are cut, in tokens.
    """
    if count < 2 or count < CUT * texts:
        return None
    return Finding(
        Check.DATA,
        certain=False,
        sentence=f"{count} of the first {texts} texts are cut at {count_of(length, 'token')}: they "
        "lack the end-of-text token that shorter ones have, and what is cut off isn't trained",
        advice="Raise the maximum length (max_length, max_seq_length, cutoff_len), or leave out "
        "texts that are longer",
        step=1,
    )
