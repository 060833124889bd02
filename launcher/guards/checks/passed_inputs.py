"""Checks the padding of the first training passes, as a transformers model reads it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from ...checks import passed
from ...checks.finding import BATCHES, Finding
from ..callers import is_called_by, user_place
from ..model_facts import base_of
from . import tokenizers
from .copies import Copy, copied
from .reporting import report

ENCODERS = {
    *("albert", "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "ernie"),
    *("mobilebert", "modernbert", "mpnet", "nomic_bert", "roberta", "xlm-roberta"),
    *("bart", "m2m_100", "marian", "mbart", "mt5", "pegasus", "t5", "umt5"),
}
"""Model types whose encoders see all tokens that no mask leaves out."""
LEARNED = {
    *("albert", "bert", "distilbert", "electra", "ernie", "gpt2", "gpt_bigcode", "gpt_neo"),
    "openai-gpt",
}
"""Model types with learned positions, which they count from the first column."""
CLASSIFIERS = "ForSequenceClassification"
ROUTERS = (".gate.", ".router.")
"""Parts of names of the routers of experts."""
SHARE = 0.25
"""Least share of a batch's rows with padding."""
MOST = 16
"""Maximum rows of a batch to inspect."""


class Inputs:
    """What the first batches of a model's training have for padding, and for labels."""

    def __init__(self) -> None:
        self._has_begun = False
        self._is_number = False
        self._is_done = False
        self._padding: list[Copy] = []
        self._labels: list[Copy] = []
        self._where = ""

    def __call__(self, model: Any, given: Mapping[str, Any]) -> None:
        """Looks at a batch before its forward pass."""
        base = base_of(model)
        config = getattr(base, "config", None)
        if config is None:
            return
        if not self._has_begun:
            self._has_begun = True
            self._where = user_place()
            report(_unbalanced(base, config, given), where=self._where)
            is_one = getattr(config, "num_labels", 0) == 1 and config.problem_type is None
            self._is_number = is_one and type(base).__name__.endswith(CLASSIFIERS)
        if self._is_number:
            self._look_at_labels(given.get("labels"))
        if not self._is_done:
            self._look_at_padding(base, config, given)

    def _look_at_padding(self, model: Any, config: Any, given: Mapping[str, Any]) -> None:
        import torch

        ids: Any = given.get("input_ids")
        is_rows = getattr(ids, "ndim", 0) == 2 and ids.dtype is torch.int64
        if not is_rows or ids.shape[1] < 3 or not _may_be_wrong(model, config):
            self._is_done = True
            return
        if len(self._padding) < BATCHES:
            facts = [*padding_facts(model, given)]
            copy = copied([fact.float().reshape(1) for fact in facts])
            self._padding += [] if copy is None else [copy]
        if len(self._padding) >= BATCHES and all(copy.is_there for copy in self._padding):
            self._is_done = True
            batches = [[part[0] > 0 for part in copy.parts()] for copy in self._padding]
            report(*passed.judged(batches), where=self._where)

    def _look_at_labels(self, labels: Any) -> None:
        if labels is None or labels.numel() > 1 << 16:
            self._is_number = False
            return
        ones, zeros = (labels == 1).sum(), (labels == 0).sum()
        copy = copied([part.reshape(1) for part in (ones, zeros, zeros * 0 + labels.numel())])
        self._labels += [] if copy is None else [copy]
        if len(self._labels) >= passed.BINARY and all(copy.is_there for copy in self._labels):
            self._is_number = False
            values = [[int(part[0]) for part in copy.parts()] for copy in self._labels]
            one, zero, count = map(sum, zip(*values, strict=True))
            report(passed.regression(count, one, count - one - zero), where=self._where)


def _unbalanced(model: Any, config: Any, given: Mapping[str, Any]) -> Finding | None:
    """Reports experts without their balancing loss."""
    coefficient = getattr(config, "router_aux_loss_coef", 0.0)
    is_asked = given.get("output_router_logits") or getattr(config, "output_router_logits", True)
    if is_asked or not isinstance(coefficient, float):
        return None
    trained = (name for name, param in model.named_parameters() if param.requires_grad)
    return passed.unbalanced(coefficient, sum(any(map(name.count, ROUTERS)) for name in trained))


def _may_be_wrong(model: Any, config: Any) -> bool:
    """Whether it is a transformers model of which something is trained."""
    is_theirs = type(model).__module__.startswith("transformers.models.")
    is_trained = any(param.requires_grad for param in model.parameters())
    return is_theirs and is_trained and hasattr(config, "model_type")


def _reads_last(model: Any) -> bool:
    """Whether it takes the last token that isn't padding, by the id, as decoders do."""
    forward = inspect.unwrap(type(model).forward)
    is_classifier = type(model).__name__.endswith(CLASSIFIERS)
    return is_classifier and "pad_token_id" in forward.__code__.co_names


def padding_facts(model: Any, given: Mapping[str, Any]) -> Iterator[Any]:
    """Boolean tensors, one for each of `passed.FAULTS`."""
    import torch

    ids, mask = given["input_ids"][:MOST], given.get("attention_mask")
    nothing = (ids != ids).any()
    config, kind = model.config, model.config.model_type
    is_odd = mask is not None and getattr(mask, "shape", ()) != given["input_ids"].shape
    if is_odd:
        yield from [nothing] * len(passed.FAULTS)
        return
    mask = None if mask is None else mask[:MOST] != 0
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    pad = getattr(text, "pad_token_id", None)
    if mask is not None and isinstance(pad, int) and _reads_last(model):
        columns = torch.arange(ids.shape[1], device=ids.device)
        read = torch.where(ids != pad, columns, 0).amax(1, keepdim=True)
        yield (~mask.gather(1, read) & mask.any(1, keepdim=True)).any()
    else:
        yield nothing
    known = tokenizers.paddings()
    pad = known.pop() if pad is None and len(known) == 1 else pad
    is_encoder = kind in ENCODERS and not getattr(config, "is_decoder", False)
    is_pad = ids == pad if isinstance(pad, int) else ids != ids
    yield (
        _begins_with(is_pad.flip(1), None if mask is None else mask.flip(1))
        if is_encoder
        else nothing
    )
    yield nothing if kind in ENCODERS else _begins_with(is_pad, mask)
    has_positions = given.get("position_ids") is not None or is_called_by("trl")
    if mask is None or has_positions or kind not in LEARNED:
        yield nothing
        return
    before = (~mask).long().cumprod(1).sum(1)
    yield ((before > 0).float().mean() >= SHARE) & (before.amax() != before.amin())


def _begins_with(is_pad: Any, mask: Any) -> Any:
    """Whether rows begin with several pad tokens that are attended, and have no others."""
    before = is_pad.long().cumprod(1).sum(1)
    is_attended = before >= 2 if mask is None else (before >= 2) & mask[:, 0]
    is_usual = is_attended.float().mean() >= SHARE
    return is_usual & (is_pad.sum(1) == before).all() & (before.amax() != before.amin())
