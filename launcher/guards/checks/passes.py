"""Inspects what the first training passes give to transformers' models, and their losses."""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from ...checks import passed
from ...checks.data import judgements
from ...checks.finding import BATCHES, Check, Finding
from .. import data_parallel
from ..callers import is_called_by
from ..model_facts import base_of
from . import tokenizers
from .calls import is_trained_pass
from .copies import Facts
from .models import known_models
from .passed_texts import Texts
from .pretrained import loaded
from .reporting import is_on, report, report_here, safely
from .texts import DECODERS, is_extended

MODELS = "transformers.modeling_utils"
PASSES = 10
"""Maximum passes to inspect."""
BEGUN = 8
"""Beginnings of loaders at which models are looked for."""
DEPTH = 3
"""Levels of modules in which a transformers model may be."""
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


class Passes:
    """The first training passes of this process's transformers models.

    Attributes:
        left: beginnings of loaders at which to look for models.
    """

    def __init__(self) -> None:
        self.left = BEGUN
        self._watched: weakref.WeakSet[Any] = weakref.WeakSet()

    def begin(self) -> None:
        """Hooks the models that are there as a loader begins."""
        kind = getattr(sys.modules.get(MODELS), "PreTrainedModel", None)
        if kind is None or not is_on(Check.DATA, Check.TRAINED):
            return
        models = [part for model in known_models() for part in _within(model, kind, DEPTH)]
        self.left -= bool(models)
        for model in models:
            if model not in self._watched:
                self._watched.add(model)
                watch(model)


passes = Passes()


def _within(module: Any, kind: type, depth: int) -> Iterator[Any]:
    """The outermost transformers models in a module."""
    if isinstance(module, kind) or hasattr(module, "get_base_model"):
        yield module
    elif depth:
        for child in module.children():
            yield from _within(child, kind, depth - 1)


def watch(model: Any) -> None:
    """Inspects a model's first training passes, then removes the hooks."""
    import torch

    texts, inputs = Texts(), Inputs()
    guesses = Guesses()
    left = PASSES
    names: list[str] = []

    called, reference = data_parallel.called(model), weakref.ref(model)

    def see(_called: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        nonlocal left
        model: Any = None if torch.compiler.is_compiling() else reference()
        if not left or model is None or not is_trained_pass(model):
            return
        left -= 1
        if not names:
            names.extend(inspect.signature(model.forward).parameters)
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        safely(Check.DATA, texts.look, model, given)
        safely(Check.DATA, inputs.look, model, given)
        if not left:
            handle.remove()

    def note(_called: Any, _args: Any, output: Any) -> None:
        model: Any = None if torch.compiler.is_compiling() else reference()
        if model is None or not is_trained_pass(model):
            return
        if guesses.is_open:
            safely(Check.DATA, guesses.look, model, output)
        if not guesses.is_open:
            after.remove()

    handle = called.register_forward_pre_hook(see, with_kwargs=True)
    after = called.register_forward_hook(note)


class Guesses:
    """The first losses of a loaded language model, which a guess's are compared with.

    Attributes:
        is_open: whether to look at more.
    """

    def __init__(self) -> None:
        self.is_open = True
        self._losses = Facts(passed.GUESSES)

    def look(self, model: Any, output: Any) -> None:
        """Looks at a pass's loss."""
        base = base_of(model)
        loss: Any = output.get("loss") if isinstance(output, Mapping) else None
        is_loaded = base in loaded and not is_extended(base)
        is_text = type(base).__name__.endswith((*DECODERS, "ForMaskedLM"))
        if not (is_loaded and is_text) or loss is None or loss.numel() != 1:
            self.is_open = False
            return
        if not self._losses.are_enough:
            self._losses.add(loss)
        if self._losses.are_there:
            self.is_open = False
            values = [value for ((value,),) in self._losses.parts()]
            text = base.config.get_text_config()
            report_here(passed.by_chance(values, int(text.vocab_size)))


class Inputs:
    """What the first batches of a model's training have for padding, and for labels."""

    def __init__(self) -> None:
        self._has_begun = False
        self._is_number = False
        self._is_done = False
        self._padding = Facts(BATCHES)
        self._labels = Facts(passed.BINARY)

    def look(self, model: Any, given: Mapping[str, Any]) -> None:
        """Looks at a batch before its forward pass."""
        base = base_of(model)
        config = getattr(base, "config", None)
        if config is None:
            return
        if not self._has_begun:
            self._has_begun = True
            report_here(_unbalanced(base, config, given))
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
        if not self._padding.are_enough:
            self._padding.add(*padding_facts(model, given))
        if self._padding.are_there:
            self._is_done = True
            report(*judgements(passed.FAULTS, self._padding.truths()), where=self._padding.where)

    def _look_at_labels(self, labels: Any) -> None:
        if labels is None or labels.numel() > 1 << 16:
            self._is_number = False
            return
        if not self._labels.are_enough:
            zeros = (labels == 0).sum()
            self._labels.add((labels == 1).sum(), zeros, zeros * 0 + labels.numel())
        if self._labels.are_there:
            self._is_number = False
            values = [[int(part[0]) for part in parts] for parts in self._labels.parts()]
            one, zero, count = map(sum, zip(*values, strict=True))
            report(passed.regression(count, one, count - one - zero), where=self._labels.where)


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

    ids, mask = given["input_ids"], given.get("attention_mask")
    mask = torch.ones_like(ids) if mask is None else mask
    if getattr(mask, "shape", ()) != ids.shape:
        yield from [(ids != ids).any()] * len(passed.FAULTS)
        return
    ids, mask = ids[:MOST], mask[:MOST] != 0
    nothing = (ids != ids).any()
    config, kind = model.config, model.config.model_type
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    pad = getattr(text, "pad_token_id", None)
    if isinstance(pad, int) and _reads_last(model):
        columns = torch.arange(ids.shape[1], device=ids.device)
        read = torch.where(ids != pad, columns, 0).amax(1, keepdim=True)
        yield (~mask.gather(1, read) & mask.any(1, keepdim=True)).any()
    else:
        yield nothing
    known = tokenizers.ids_of("pad_token_id")
    pad = known.pop() if pad is None and len(known) == 1 else pad
    is_encoder = kind in ENCODERS and not getattr(config, "is_decoder", False)
    is_pad = ids == pad if isinstance(pad, int) else ids != ids
    yield _begins_with(is_pad.flip(1), mask.flip(1)) if is_encoder else nothing
    yield nothing if kind in ENCODERS else _begins_with(is_pad, mask)
    has_positions = given.get("position_ids") is not None or is_called_by("trl")
    before = (~mask).long().cumprod(1).sum(1)
    is_shifted = ((before > 0).float().mean() >= SHARE) & (before.amax() != before.amin())
    yield nothing if has_positions or kind not in LEARNED else is_shifted


def _begins_with(is_pad: Any, mask: Any) -> Any:
    """Whether rows begin with several pad tokens that are attended, and have no others."""
    before = is_pad.long().cumprod(1).sum(1)
    is_attended = (before >= 2) & mask[:, 0]
    is_usual = is_attended.float().mean() >= SHARE
    return is_usual & (is_pad.sum(1) == before).all() & (before.amax() != before.amin())
