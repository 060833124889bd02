"""Checks on the texts that train a transformers language model."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

import wrapt

from ...evidence.observations import Observations

HOOKED = ("transformers.modeling_utils",)
IGNORED = -100
"""torch's default label to ignore (torch.nn.CrossEntropyLoss)."""

_extended: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""By model: its number of tokens before adding more."""


def install(module: ModuleType, _observations: Observations) -> None:
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


def asked_of_texts(batch: Mapping[str, Any], labels: Any, model: Any) -> Iterator[Any]:
    """Boolean tensors on a decoder's batch; none for other batches.

    Whether all labels are the next tokens, whether ends of texts are ignored but not the tokens
    before, and whether added tokens occur that aren't trained.
    """
    model = _bare(model)
    ids: Any = batch.get("input_ids")
    mask: Any = batch.get("attention_mask")
    if model is None or "shift_labels" in batch or getattr(ids, "shape", ()) != labels.shape:
        return
    if labels.ndim != 2 or labels.shape[1] < 2:
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
    is_trained = any(each.requires_grad for each in embedding.parameters())
    first = None if is_trained else _extended.get(model)
    yield (ids >= first).any() if first else (ids != ids).any()


def _are(ids: Any, tokens: Any) -> Any:
    """Mask of ids in a set of tokens."""
    found = ids != ids
    for token in tokens if isinstance(tokens, list | tuple) else (tokens,):
        found = found | (ids == token) if isinstance(token, int) else found
    return found


def _bare(model: Any) -> Any:
    """The unwrapped transformers decoder if its loss shifts labels."""
    model = getattr(model, "module", model)
    model = model.get_base_model() if hasattr(model, "get_base_model") else model
    kind = type(model)
    is_decoder = kind.__name__.endswith("ForCausalLM")
    if not is_decoder or not kind.__module__.startswith("transformers.models."):
        return None
    code = inspect.unwrap(kind.forward).__code__  # Bart's takes labels that are shifted already
    is_shifting = "loss_function" in code.co_names or "shift_labels" in code.co_varnames
    return model if is_shifting else None
