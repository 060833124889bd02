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
from ...checks.finding import Check, Finding
from ...core.private_names import DIVISOR, FACTOR, IGNORED_LABEL, METADATA, REDUCTION, TARGET
from ...evidence.observations import observations
from .. import data_parallel
from ..callers import FRAMEWORKS, is_called_by, user_codes, user_place
from ..divided_data import tensors_in
from ..model_facts import base_of
from . import dtypes
from .copies import Copy, copied
from .graphs import AROUND, MEAN, MEANS, PASSED_ON, PLAIN, before, nodes_of
from .overlap import overlap
from .reporting import is_on, report, report_here
from .texts import trained_padding

LABELLED = ("NllLossBackward0", "NllLoss2DBackward0")
"""Autograd nodes of a loss of labels; the second has those of rows."""
NONE, SUM = 0, 2
"""torch's numbers of no reduction, and of the sum (torch/nn/_reduction.py)."""
SUMMED = ("MulBackward0", "SumBackward0", "SumBackward1", "ReshapeAliasBackward0")
"""Autograd nodes of a masked sum."""
FAULTS = (data.PADDING_IN_LOSS, data.UNSHIFTED_LABELS, data.SHIFTED_TWICE)
"""The faults of labels, in the order of their facts."""
ELEMENTWISE = (
    *("SubBackward0", "PowBackward0", "AbsBackward0", "SqrtBackward0", "ExpandBackward0"),
    *("MseLossBackward0", "L1LossBackward0", "SmoothL1LossBackward0", "HuberLossBackward0"),
    *("BinaryCrossEntropyBackward0", "BinaryCrossEntropyWithLogitsBackward0", *AROUND),
)
"""Autograd nodes of a regression's loss."""
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
        self._facts: list[Copy] = []
        self._values: dict[int, Copy] = {}
        self._has_judged = False
        self._left = 2 * data.BATCHES  # passes whose inputs are noted
        self._place = ""

    def watch(self) -> None:
        """Hooks the models whose samples are divided among ranks, as a loader begins."""
        for model in data_parallel.dividing() if self.is_open else ():
            if model not in self._hooks:
                hook = model.register_forward_pre_hook(self._note, with_kwargs=True)
                self._hooks[model] = hook

    def _note(self, model: Any, args: Any, kwargs: Any) -> None:
        import torch

        if torch.compiler.is_compiling() or not (model.training and torch.is_grad_enabled()):
            return
        if overlap.is_open:
            overlap.passes((args, kwargs))
        self._eager.add(model)
        if not self._left or len(self._facts) == data.BATCHES:
            return
        self._left -= 1
        with suppress(Exception):  # a batch may be anything
            self._inputs = _inputs(getattr(model, "module", model), args, kwargs)

    def look(self, loss: Any) -> None:
        """Inspects a loss before its backward pass begins."""
        step = (observations.steps_of_all() or 0) + 1
        inputs, self._inputs = self._inputs, None
        self._judge_labels()
        if step > built.LOSSES:
            self._judge_values(step)
            return
        if getattr(loss, "numel", int)() != 1 or step in self._values:
            return
        with observations.going_on():
            if not self._values:
                report_here(built.broadcast_loss(_broadcast(loss)), self._multiplied(loss))
                report_here(divided.summed_labels() if _is_sum_of_labels(loss) else None)
            if inputs is not None and len(self._facts) < data.BATCHES:
                self._look_at_labels(loss, inputs)
        value = copied([loss.detach().reshape(1)])
        if value is None or loss.dtype.itemsize < 4:  # coarse values are equal by chance
            self._end()
        else:
            self._values[step] = value

    def _look_at_labels(self, loss: Any, inputs: Inputs) -> None:
        facts = _label_facts(loss, inputs)
        copy = None if facts is None else copied([fact.float().reshape(1) for fact in facts])
        if copy is not None:
            self._place = self._place or user_place()
            self._facts.append(copy)

    def _judge_labels(self) -> None:
        """Judges the first batches once their facts have arrived."""
        if len(self._facts) < data.BATCHES or self._has_judged or not is_on(Check.DATA):
            return
        if all(copy.is_there for copy in self._facts):
            self._has_judged = True
            batches = [[part[0] > 0 for part in copy.parts()] for copy in self._facts]
            for fault, shown in zip(FAULTS, zip(*batches, strict=True), strict=True):
                report(fault.judged(shown), where=self._place)

    def _judge_values(self, step: int) -> None:
        """Judges the losses of the first steps once they have arrived."""
        copies = self._values.values()
        if all(copy.is_there for copy in copies):
            report_here(built.still_loss([copy.parts()[0][0] for copy in copies]))
            self._end()
        elif step > built.LOSSES + LATE:
            self._end()

    def _multiplied(self, loss: Any) -> Finding | None:
        """Reports a mean times the number of ranks, by whose mean DDP divides it again."""
        ranks = data_parallel.world()
        if is_called_by(*FRAMEWORKS) or not data_parallel.replicated() or ranks < 2:
            return None
        if _factor_of_mean(loss) != ranks or not (
            ranks > 2 or any(map(_names_ranks, user_codes()))
        ):
            return None
        is_gathered = any("gather" in node.name().lower() for node in nodes_of(loss))
        return None if is_gathered else divided.multiplied(ranks)

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
        kind.__module__.startswith("transformers.models.")
        and kind.__name__.endswith(("ForCausalLM", "GPT2LMHeadModel")),
        {
            layer.num_embeddings: layer.padding_idx
            for layer in base.modules()
            if isinstance(layer, torch.nn.Embedding) and layer.padding_idx is not None
        },
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
    rows = labels.numel() // len(ids)
    if rows * len(ids) != labels.numel() or rows not in (width, width - 1):
        return (nothing if is_padding is None else is_padding), nothing, nothing
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
    return (nothing if is_padding is None else is_padding), unshifted, twice


def _counts_padding(node: Any, labels: Any, counts: Any, inputs: Inputs) -> Any:
    """Whether padding, as an embedding of as many tokens has it, counts as labels in a row."""
    shapes = METADATA.of(node.next_functions[0][0])
    padding = inputs.padding.get(int(shapes[0].shape[1]))
    if padding is None or inputs.mask is not None:
        return None
    is_padding = ((labels == padding) & counts).reshape(-1)
    return (is_padding[1:] & is_padding[:-1]).any()


def _signed(number: int) -> int:
    """An integer that torch gives without its sign."""
    return number - (1 << 64) if number >= 1 << 63 else number


def _factor_of_mean(loss: Any) -> float:
    """The number by which a mean is multiplied; 0 if it isn't one, or by other tensors."""
    factor, node = 1.0, loss.grad_fn
    is_scaled = bool(dtypes.scaling)
    while node is not None and node.name() in ("MulBackward0", "DivBackward0", *PASSED_ON):
        if node.name() not in PASSED_ON and not is_scaled:
            is_product = node.name() == "MulBackward0"
            number = (FACTOR if is_product else DIVISOR).of(node)
            value = 0.0 if number is None or number.numel() != 1 else _number(number)
            if not value:
                return 0.0
            factor = factor * value if is_product else factor / value
        is_scaled = is_scaled and node.name() in PASSED_ON
        node = node.next_functions[0][0]
    name = "" if node is None else node.name()
    is_mean = name == PLAIN or (name in MEANS and REDUCTION.of(node) == MEAN)
    return factor if is_mean else 0.0


def _is_sum_of_labels(loss: Any) -> bool:
    """Whether a loss is the sum over labels, divided by nothing and not made smaller."""
    node, is_sum = loss.grad_fn, False
    is_scaled = bool(dtypes.scaling)
    while node is not None and node.name() in (*SUMMED, *PASSED_ON):
        if node.name() == "MulBackward0":
            factor = None if is_scaled else FACTOR.of(node)
            if factor is not None and factor.numel() == 1 and not abs(_number(factor)) >= 1:
                return False
            is_scaled = False
        is_sum |= node.name().startswith("SumBackward")
        node = node.next_functions[0][0]
    if node is None or node.name() not in LABELLED:
        return False
    return bool(REDUCTION.of(node) == SUM or (is_sum and REDUCTION.of(node) == NONE))


def _number(tensor: Any) -> float:
    """The value of a tensor of one element; 0 for one that would have to be waited for."""
    is_there = tensor.device.type == "cpu" and not tensor.requires_grad
    return float(tensor) if is_there else 0.0


def _names_ranks(code: CodeType) -> bool:
    """Whether code uses a name for the number of ranks."""
    names = (*code.co_names, *code.co_varnames, *code.co_freevars)
    return any(part in name.lower() for name in names for part in RANKS)


def _broadcast(loss: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The shapes of an output and of its differences to values of another shape."""
    node = loss.grad_fn
    while node is not None and node.name() in ELEMENTWISE:
        following = next((one for one, _ in node.next_functions if one is not None), None)
        is_alone = sum(one is not None for one, _ in node.next_functions) == 1
        if following is None:
            return None
        if node.name() in ("SubBackward0", "ExpandBackward0") and is_alone:
            made, given = (tuple(METADATA.of(one)[0].shape) for one in (node, following))
            rows = max(given, default=0)
            is_row = given in ((rows,), (rows, 1), (1, rows))
            if is_row and rows > 1 and made == (rows, rows):
                return given, made
        node = following
    return None
