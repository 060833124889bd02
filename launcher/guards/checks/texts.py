"""Checks on the texts that train a transformers language model."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

import wrapt

from ...checks import data
from ...checks.finding import Finding
from ..model_facts import base_of

HOOKED = ("transformers.modeling_utils",)
IGNORED = -100
"""torch's default label to ignore (torch.nn.CrossEntropyLoss)."""
LOSSES = {"loss_function", "CrossEntropyLoss"}
"""Names in a transformers `forward` that computes a loss of labels."""
DECODERS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
"""Ends of names of transformers' language models; the last is also of encoder-decoders."""
TEXTS = 128
"""Texts of a data set to inspect."""
MOSTLY = 0.9
"""Least share of texts that are alike."""
MASKING = {"active_loss", "shift_attention_mask"}
"""Names in a `forward` whose loss leaves out padding."""

_extended: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""By model: its number of tokens before adding more."""


def install(module: ModuleType) -> None:
    """Notes models whose embeddings are resized."""

    def resized(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        before = _tokens_of(instance)
        result = wrapped(*args, **kwargs)
        if 0 < before < _tokens_of(instance):
            _extended.setdefault(instance, before)
        return result

    wrapt.wrap_function_wrapper(module, "PreTrainedModel.resize_token_embeddings", resized)


def _tokens_of(model: Any) -> int:
    """Tokens of a model's input embeddings; 0 for a model without any."""
    with suppress(NotImplementedError, AttributeError):
        return int(model.get_input_embeddings().num_embeddings)
    return 0


def is_extended(model: Any) -> bool:
    """Whether tokens were added to a model's embeddings."""
    return model in _extended


def text_faults(batch: Mapping[str, Any], labels: Any, model: Any) -> Iterator[Any]:
    """Boolean tensors on a decoder's batch; none for other batches.

    Whether all labels are the next tokens, whether ends of texts are ignored but not the tokens
    before, whether added tokens occur that aren't trained, whether most texts begin twice, and
    whether a mask joins what positions divide.
    """
    model = base_of(getattr(model, "module", model))
    ids: Any = batch.get("input_ids")
    mask: Any = batch.get("attention_mask")
    if not is_shifting(model) or "shift_labels" in batch:
        return
    if getattr(ids, "shape", ()) != labels.shape or labels.ndim != 2 or labels.shape[1] < 2:
        return
    counts = labels != IGNORED
    is_next = (labels[:, :-1] == ids[:, 1:]) | ~counts[:, :-1]
    is_shifted = is_next.all() & ((labels != ids) & counts).any()
    yield is_shifted
    ends = _are(ids, model.config.eos_token_id)
    if getattr(mask, "shape", ()) != ids.shape:
        mask = ids != ids  # what looks like an end may be padding
    behind = ends[:, 1:] & counts[:, :-1] & ~ends[:, :-1] & (mask[:, 1:] == 1)
    yield behind.any() & ~(behind & counts[:, 1:]).any() & ~is_shifted
    embedding = model.get_input_embeddings()
    is_trained = any(param.requires_grad for param in embedding.parameters())
    first = None if is_trained else _extended.get(model)
    yield (ids >= first).any() if first else (ids != ids).any()
    yield _begin_twice(ids, mask, model.config)
    is_masked = getattr(batch.get("attention_mask"), "shape", ()) == ids.shape
    yield _are_joined(batch.get("position_ids") if is_masked else None, ids, mask)


def cut_texts(dataset: Any, model: Any) -> Finding | None:
    """Reports a data set of whose first texts the longest are cut, unlike shorter ones.

    Nearly all that have the greatest length lack the end-of-text token, and nearly all others end
    with it.
    """
    names = getattr(dataset, "column_names", None)
    is_table = hasattr(dataset, "select_columns") and hasattr(dataset, "__len__")
    if not is_table or not isinstance(names, list) or "input_ids" not in names:
        return None
    config = base_of(getattr(model, "module", model)).config
    ends = numbers(getattr(config, "eos_token_id", None))
    # Neither decodes other columns nor runs a transform of the script's, which may draw.
    plain = dataset.select_columns(["input_ids"]).with_format(None)
    texts = plain[:TEXTS]["input_ids"]
    longest = max(map(len, texts), default=0)
    cut = [text[-1] not in ends for text in texts if len(text) == longest > 1]
    others = [text[-1] in ends for text in texts if 0 < len(text) < longest]
    is_usual = all(sum(each) >= MOSTLY * len(each) for each in (cut, others))
    if not is_usual or len(others) < len(texts) / 2:
        return None
    return data.cut(sum(cut), len(texts), longest)


def trained_padding(batch: Mapping[str, Any], labels: Any, model: Any) -> Any:
    """Whether labels of padding count in a transformers model's loss, as a boolean tensor.

    One such label per text may be its end; a mask that isn't padding has holes.
    """
    model, nothing = base_of(getattr(model, "module", model)), (labels != labels).any()
    if not _counts_all(model) or labels.ndim != 2 or labels.shape[1] < 2:
        return nothing
    if getattr(model.config, "is_encoder_decoder", False):
        is_padding = _are(labels, getattr(model.config, "pad_token_id", None))
        return is_padding[:, -2:].all(1).any()
    mask: Any = batch.get("attention_mask")
    if getattr(mask, "shape", ()) != labels.shape or mask.is_floating_point():
        return nothing
    is_padding = mask == 0
    is_whole = (is_padding[:, 1:] != is_padding[:, :-1]).sum(1) < 2
    return (is_whole & ((is_padding & (labels != IGNORED)).sum(1) > 1)).any()


def _begin_twice(ids: Any, mask: Any, config: Any) -> Any:
    """Whether most rows begin with two bos tokens, behind padding."""
    import torch

    begin, end, pad = (getattr(config, f"{name}_token_id", None) for name in ("bos", "eos", "pad"))
    if not isinstance(begin, int) or begin in (*numbers(end), pad) or ids.shape[1] < 3:
        return (ids != ids).any()
    first = mask.long().argmax(1, keepdim=True).clamp(max=ids.shape[1] - 3)
    three = ids.gather(1, first + torch.arange(3, device=ids.device)) == begin
    return (three[:, 0] & three[:, 1] & ~three[:, 2]).float().mean() > 0.5


def _are_joined(positions: Any, ids: Any, mask: Any) -> Any:
    """Whether positions restart within tokens that a 2-D mask joins.

    Without such a mask transformers separates the texts, since 4.53
    (transformers/masking_utils.py, `_preprocess_mask_arguments`).
    """
    if getattr(positions, "shape", ()) != ids.shape or mask.dtype.is_floating_point:
        return (ids != ids).any()
    begins = (positions[:, 1:] == 0) & (positions[:, :-1] > 0)
    return (begins & (mask[:, 1:] == 1) & (mask[:, :-1] == 1)).any()


def numbers(tokens: Any) -> list[int]:
    """The ids in a configuration's field, which has one, several or none."""
    values = tokens if isinstance(tokens, list | tuple) else (tokens,)
    return [number for number in values if isinstance(number, int)]


def _are(ids: Any, tokens: Any) -> Any:
    """Mask of the ids that a configuration's field has."""
    matches = ids != ids
    for token in numbers(tokens):
        matches = matches | (ids == token)
    return matches


def is_shifting(model: Any) -> bool:
    """Whether it is a transformers decoder whose loss shifts labels; Bart's doesn't."""
    kind = type(model)
    is_decoder = kind.__name__.endswith(DECODERS) and not model.config.is_encoder_decoder
    if not is_decoder or not kind.__module__.startswith("transformers.models."):
        return False
    code = inspect.unwrap(kind.forward).__code__
    return "loss_function" in code.co_names or "shift_labels" in code.co_varnames


def _counts_all(model: Any) -> bool:
    """Whether the model's loss is transformers', and ignores no label but -100."""
    forward = inspect.unwrap(getattr(type(model), "forward", base_of))
    if not forward.__module__.startswith("transformers.models."):
        return False
    names = {*forward.__code__.co_names, *forward.__code__.co_varnames}
    return bool(names & LOSSES) and not names & MASKING


def padded_embeddings(model: Any) -> Iterator[Any]:
    """A model's embeddings that have a token for padding."""
    import torch

    for layer in model.modules():
        if isinstance(layer, torch.nn.Embedding) and layer.padding_idx is not None:
            yield layer
