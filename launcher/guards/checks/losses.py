"""Checks the losses of the first steps: their labels, scale and shape, and whether they move.

Labels are compared with the model's inputs, which a hook before its forward pass notes.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType
from typing import Any

from ...checks import built, data, divided
from ...checks.finding import BATCHES, Check, Finding
from ...core.private_names import IGNORED_LABEL, REDUCTION, TARGET
from ...evidence.observations import observations
from .. import data_parallel
from ..callers import FRAMEWORKS, is_called_by, user_codes
from ..divided_data import tensors_in
from ..model_facts import base_of
from .batches import overlap
from .calls import is_trained_pass
from .copies import Facts
from .graphs import (
    AROUND,
    LABELLED,
    NONE,
    before,
    broadcast,
    done_twice,
    factor_of_mean,
    is_sum_of_labels,
    nodes_of,
    reshaped,
    shape_of,
)
from .reporting import is_on, report, report_here
from .texts import DECODERS, padded_embeddings, trained_padding
from .user_source import is_written_division

FAULTS = (data.PADDING_IN_LOSS, data.UNSHIFTED_LABELS, data.SHIFTED_TWICE)
"""The faults of labels, in the order of their facts."""
LATE = 5
"""Steps to wait for the values of the last inspected one."""
RANKS = ("world_size", "num_processes", "n_gpu", "ngpus", "num_gpus", "num_replicas", "nproc")
"""Parts of names for the number of ranks."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """A forward pass's tokens.

    Attributes:
        ids: a tensor of rows of tokens.
        mask: which of them aren't padding; None if not given.
        has_padding_labels: whether labels of padding count in the model's own loss, a tensor.
        is_decoder: whether it is a decoder of transformers', each output of which predicts the
            next token.
        padding: by vocabulary size, the token whose embedding is padding's.
        has_labels: whether the model gets labels, which it may shift itself.
    """

    ids: Any
    mask: Any
    has_padding_labels: Any
    is_decoder: bool
    padding: dict[int, int]
    has_labels: bool = False


class Losses:
    """The losses of a process's first steps.

    Attributes:
        is_open: whether to look at further backward passes.
    """

    def __init__(self) -> None:
        self.is_open = True
        self._inputs: Inputs | None = None
        self._hooks: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._eager: weakref.WeakSet[Any] = weakref.WeakSet()  # those that aren't compiled
        self._labels, self._values = Facts(BATCHES), Facts(built.LOSSES)
        self._has_judged = False
        self._left = 2 * BATCHES  # passes whose inputs are noted

    def watch(self) -> None:
        """Hooks the models whose samples are divided among ranks, as a loader begins."""
        for model in data_parallel.outermost() if self.is_open else ():
            if model not in self._hooks:
                hook = model.register_forward_pre_hook(self._note, with_kwargs=True)
                self._hooks[model] = hook

    def _note(self, model: Any, args: Any, kwargs: Any) -> None:
        if not is_trained_pass(model):
            return
        if overlap.is_open:
            overlap.passes((args, kwargs))
        self._eager.add(model)
        if not self._left or self._labels.are_enough:
            return
        self._left -= 1
        with suppress(Exception):  # a batch may be anything
            model = data_parallel.inner(model)
            self._inputs = _inputs(getattr(model, "module", model), args, kwargs)

    def look(self, loss: Any) -> None:
        """Inspects a loss before its backward pass begins."""
        step = (observations.steps_of_all() or 0) + 1
        inputs, self._inputs = self._inputs, None
        self._judge_labels()
        if step > built.LOSSES:
            self._judge_values(step)
            return
        if step == 1:
            report_here(built.normalized_twice(done_twice(loss)))
        if getattr(loss, "numel", int)() != 1 or step in self._values:
            return
        if not self._values:
            with observations.going_on():
                report_here(self._multiplied(loss))
                report_here(divided.summed_labels() if is_sum_of_labels(loss) else None)
            with observations.going_on():
                report_here(built.broadcast_loss(broadcast(loss)))
                report_here(built.mixed_classes(reshaped(loss)))
        if inputs is not None and not self._labels.are_enough:
            with observations.going_on():
                facts = _label_facts(loss, inputs)
                if facts is not None:
                    self._labels.add(*facts)
        # Coarse values are equal by chance.
        if loss.dtype.itemsize < 4 or not self._values.add(loss, call=step):
            self._end()

    def _judge_labels(self) -> None:
        """Judges the first batches once their facts have arrived."""
        if self._labels.are_there and not self._has_judged and is_on(Check.DATA):
            self._has_judged = True
            report(*data.judgements(FAULTS, self._labels.truths()), where=self._labels.where)

    def _judge_values(self, step: int) -> None:
        """Judges the losses of the first steps once they have arrived."""
        if self._values.have_arrived:
            report_here(built.still_loss([value for ((value,),) in self._values.parts()]))
            self._end()
        elif step > built.LOSSES + LATE:
            self._end()

    def _multiplied(self, loss: Any) -> Finding | None:
        """Reports a mean times the number of ranks, or divided by it as DDP's gradients are.

        With FSDP2, a script may set what gradients are divided by, and then divide the loss.
        """
        ranks = data_parallel.world()
        is_by_ddp = bool(data_parallel.replicated())
        is_sharded = any(hasattr(model, "reshard") for model in data_parallel.others)
        if is_called_by(*FRAMEWORKS) or not (is_by_ddp or is_sharded) or ranks < 2:
            return None
        factor = factor_of_mean(loss)
        if is_by_ddp and factor * ranks == 1 and is_written_division(loss, RANKS, ranks):
            return divided.by_ranks(ranks, is_multiplied=False)
        if factor != ranks or not (ranks > 2 or any(map(_names_ranks, user_codes()))):
            return None
        is_gathered = any("gather" in node.name().lower() for node in nodes_of(loss))
        averaging = "DistributedDataParallel" if is_by_ddp else "FSDP2"
        found = divided.by_ranks(ranks, is_multiplied=True, averaging=averaging)
        return None if is_gathered else found

    def _end(self) -> None:
        self.is_open = False
        for model in self._eager:  # removing a compiled one's hook might compile it again
            self._hooks[model].remove()


first_losses = Losses()
"""The losses of this process."""


def _inputs(model: Any, args: Any, kwargs: Mapping[str, Any]) -> Inputs | None:
    """The tokens of a forward pass; None if there are none."""
    import torch

    rows = (one for one in tensors_in((kwargs.get("input_ids"), args, kwargs)))
    ids = next((one for one in rows if one.ndim == 2 and one.dtype is torch.int64), None)
    if ids is None or ids.shape[1] < 3:
        return None
    mask: Any = kwargs.get("attention_mask")
    is_mask = getattr(mask, "shape", ()) == ids.shape and not mask.is_floating_point()
    labels = kwargs.get("labels")
    has_labels = getattr(labels, "shape", ()) == ids.shape
    base = base_of(model)
    kind = type(base)
    return Inputs(
        ids,
        mask if is_mask else None,
        trained_padding(kwargs, labels, model) if has_labels else (ids != ids).any(),
        kind.__module__.startswith("transformers.models.") and kind.__name__.endswith(DECODERS[:2]),
        {layer.num_embeddings: layer.padding_idx for layer in padded_embeddings(base)},
        has_labels,
    )


def _label_facts(loss: Any, inputs: Inputs) -> tuple[Any, ...] | None:
    """Boolean tensors on a loss's labels, one for each of FAULTS; None if it has no labels."""
    node = before(loss.grad_fn, AROUND)
    if node is None or node.name() not in LABELLED or REDUCTION.of(node) == NONE:
        return None
    labels, ids, width = TARGET.of(node), inputs.ids, inputs.ids.shape[1]
    counts = labels != _signed(IGNORED_LABEL.of(node))
    nothing = (ids != ids).any()
    is_padding = _counts_padding(node, labels, counts, inputs)
    is_padding = nothing if is_padding is None else is_padding  # on the ids' device, as the others
    rows = labels.numel() // len(ids)
    if rows * len(ids) != labels.numel() or rows not in (width, width - 1):
        return is_padding, nothing, nothing
    labels, counts = labels.reshape(len(ids), rows), counts.reshape(len(ids), rows)

    def all_are(ahead: int) -> Any:
        """Whether all labels are the inputs so far ahead."""
        columns = min(rows, width - ahead)
        is_same = labels[:, :columns] == ids[:, ahead : ahead + columns]
        return (is_same | ~counts[:, :columns]).all() & counts[:, :columns].any()

    is_next = all_are(1)
    if inputs.mask is not None:
        outside = inputs.mask[:, 1:] == 0
        is_whole = (outside[:, 1:] != outside[:, :-1]).sum(1) < 2
        several = (outside & counts[:, : width - 1]).sum(1) > 1
        is_padding = is_next & (is_whole & several).any() & ~inputs.has_padding_labels
    is_decoder = inputs.is_decoder
    unshifted = all_are(0) & ~is_next if is_decoder and rows == width else nothing
    twice = all_are(2) & ~is_next if is_decoder and not inputs.has_labels else nothing
    return is_padding, unshifted, twice


def _counts_padding(node: Any, labels: Any, counts: Any, inputs: Inputs) -> Any:
    """Whether padding, as an embedding of as many tokens has it, counts as labels in a row.

    None if no such padding is known.
    """
    padding = None
    with observations.going_on():
        if inputs.padding and inputs.mask is None:
            padding = inputs.padding.get(shape_of(node.next_functions[0][0])[1])
    if padding is None:
        return None
    is_padding = ((labels == padding) & counts).reshape(-1)
    return (is_padding[1:] & is_padding[:-1]).any()


def _signed(number: int) -> int:
    """An integer that torch gives without its sign."""
    return number - (1 << 64) if number >= 1 << 63 else number


def _names_ranks(code: CodeType) -> bool:
    """Whether code uses a name for the number of ranks."""
    names = (*code.co_names, *code.co_varnames, *code.co_freevars)
    return any(part in name.lower() for name in names for part in RANKS)
