"""Looks at what attention, recurrent layers and softmax mix in the first steps."""

from __future__ import annotations

import weakref
from collections import defaultdict
from typing import Any

from ...checks import layers
from ...checks.finding import BATCHES, Check
from ...core.private_names import NORMALIZED
from ...evidence.observations import observations
from ..callers import user_place
from ..divided_data import tensors_in
from .calls import Call, Watch, running
from .copies import Facts, is_plain
from .graphs import nodes_of, shape_of
from .models import is_compiled, known_models
from .reporting import is_on, report, report_here, safely
from .texts import IGNORED, padded_embeddings

ATTENTION = "multi_head_attention_forward"
LATE = 6
"""Steps to look at, and to wait for values."""
NORMALIZING = ("SoftmaxBackward0", "LogSoftmaxBackward0")


class Mixing(Watch):
    """The mixing layers of a process's first steps."""

    def __init__(self) -> None:
        super().__init__()
        self._batch = 0  # samples of the loader's batches
        self._sizes: dict[tuple[str, str], dict[int, tuple[int, ...]]] = defaultdict(dict)
        self._softmax: dict[int, tuple[int, ...]] = {}
        self._inverted, self._next = Facts(BATCHES), Facts(BATCHES)
        self._is_masked = self._is_crossed = False
        self._ids: list[Any] = []  # of a pass, until its loss
        self._hooks: list[Any] = []
        self._hooked: weakref.WeakSet[Any] = weakref.WeakSet()

    def begin(self, loader: Any) -> None:
        """Notes a loader that begins, and looks at the models' recurrent layers."""
        import torch

        if not torch.is_grad_enabled():
            return
        size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", 0)
        self._batch = size if isinstance(size, int) else 0
        self._ids = []
        for model in known_models() if self._batch else ():
            if model in self._hooked or is_compiled(model):
                continue
            self._hooked.add(model)
            for layer in model.modules():
                if isinstance(layer, torch.nn.RNNBase) and not layer.batch_first:
                    self._hooks.append(layer.register_forward_pre_hook(self._recur))

    def look(self, call: Call) -> None:
        """Looks at a call of attention or of a loss."""
        import torch

        steps = observations.steps_of_all() or 0
        if steps >= LATE:
            self._end()
        elif not torch.is_grad_enabled():
            return
        elif call.name == ATTENTION:
            self._attend(call, steps)
        elif call.is_trained:
            self._judge_loss(call, steps)

    def _recur(self, layer: Any, args: Any) -> None:
        import torch

        if not torch.compiler.is_compiling() and is_on(Check.TRAINED):
            safely(Check.TRAINED, self._see, layer, args[0] if args else None)

    def _see(self, layer: Any, given: Any) -> None:
        """Notes a call of a layer whose sequence comes first, and judges the first."""
        import torch

        steps = observations.steps_of_all() or 0
        if not torch.is_grad_enabled() or not isinstance(given, torch.Tensor) or steps >= LATE:
            return
        now = running()
        inputs = tensors_in((now.args, now.kwargs)) if now.modules else iter((given,))
        sizes = tuple(tuple(each.shape[:2]) for each in inputs if each.ndim > 1)
        size = tuple(given.shape[:2]) if given.ndim == 3 else ()
        calls = self._sizes[type(layer).__name__, user_place()]
        if steps not in calls and len(calls) < BATCHES:
            calls[steps] = size if layers.is_over_batch(self._batch, size, sizes) else ()
            report_here(layers.over_batch(type(layer).__name__, list(calls.values())))

    def _attend(self, call: Call, steps: int) -> None:
        query, key = call.args[:2]
        is_self = query is key or query.data_ptr() == key.data_ptr()
        mask = call.kwargs.get("attn_mask")
        self._is_masked |= mask is not None or bool(call.kwargs.get("is_causal"))
        self._is_crossed |= not is_self
        if steps >= BATCHES:
            return
        now = running()
        layer = now.modules[0] if now.modules else None
        if layer is None:
            return
        if not getattr(layer, "batch_first", True):
            self._see(layer, query)
        words = now.words
        if is_self and query.ndim == 3 and not self._ids:
            size = query.shape[1], query.shape[0]
            self._ids = [each for each in words if tuple(each.shape) == size]
        padding: Any = call.kwargs.get("key_padding_mask")
        if is_plain(padding) and padding.ndim == 2 and steps not in self._inverted:
            self._note_padding(padding, words, now.outermost, steps)

    def _note_padding(self, padding: Any, rows: list[Any], model: Any, steps: int) -> None:
        """Begins to compare a mask of padding with the words' places."""
        import torch

        left_out = padding.detach() < -1e4 if padding.is_floating_point() else padding
        rows = [each for each in rows if each.shape == padding.shape]
        markers = {layer.padding_idx for layer in padded_embeddings(model)}
        if not rows or len(markers) != 1 or left_out.dtype is not torch.bool:
            return
        places = [each != next(iter(markers)) for each in rows]
        facts = [(left_out == words).all() & ~words.all() & words.any() for words in places]
        self._inverted.add(*facts, call=steps)

    def _judge_loss(self, call: Call, steps: int) -> None:
        ids, self._ids = self._ids, []
        target = call.argument(1, "target")
        if steps < BATCHES:
            if steps not in self._softmax and getattr(target, "shape", ())[:1] == (self._batch,):
                self._note_softmax(call.made, steps)
            is_one = (len(ids) == 1 or (ids and self._is_crossed)) and steps not in self._next
            if is_one and call.name == "cross_entropy" and is_plain(target):
                facts = [fact for each in ids if (fact := _are_next(target, each)) is not None]
                if facts:
                    self._next.add(*facts, call=steps)
        elif self._inverted.have_arrived and self._next.have_arrived:
            self._end()
            found = layers.INVERTED_MASK.judged(_shown(self._inverted))
            report(found, where=self._inverted.where)
            if not self._is_masked:
                report_here(layers.SEEN_AHEAD.judged(_shown(self._next)))

    def _note_softmax(self, made: Any, steps: int) -> None:
        """Looks for a softmax over the samples next to a loss."""
        with observations.going_on():
            for node in nodes_of(made):
                if node.name() in NORMALIZING and NORMALIZED.of(node) == 0:
                    shape = shape_of(node)
                    if len(shape) > 1 and shape[0] == self._batch > 1 and shape[1] != self._batch:
                        self._softmax[steps] = shape
                        report_here(layers.normalized_over_batch([*self._softmax.values()]))
                        return

    def _end(self) -> None:
        self.is_open = False
        self._ids = []
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()


mixing = Mixing()
"""Those of this process."""


def _are_next(target: Any, ids: Any) -> Any:
    """Whether all labels are the next words, a tensor; None for labels of other sizes."""
    rows, length = ids.shape
    width = target.numel() // rows
    if target.is_floating_point() or width * rows != target.numel() or length < 3:
        return None
    if width not in (length, length - 1):
        return None
    labels = target.detach().reshape(rows, width)[:, : length - 1]
    counts = labels != IGNORED
    following, here = ids[:, 1:], ids[:, : length - 1]
    is_next = ((labels == following) | ~counts).all()
    return is_next & ((labels != here) & counts).any()


def _shown(facts: Facts) -> list[bool]:
    """Whether any fact of each step is true."""
    return [any(truths) for truths in facts.truths()]
