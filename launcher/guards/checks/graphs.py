"""What the autograd graph of a loss shows of its mean, its labels and shapes, and the casts."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator
from typing import Any

from ...checks import divided, updated
from ...core.private_names import DIVISOR, FACTOR, METADATA, REDUCTION, VERSION
from ...evidence.observations import observations
from ..callers import FRAMEWORKS, is_called_by, user_place
from . import dtypes
from .reporting import report, report_here

NODES = 200
"""Maximum nodes of a loss to visit, those next to it first."""
PASSED_ON = ("_DDPSinkBackward", "ToCopyBackward0", "ViewBackward0")
"""Autograd nodes to skip between a loss and the function that computed it."""
PLAIN = "MeanBackward0"
MEANS = tuple(
    f"{name}Backward0"
    for name in (
        *("NllLoss", "NllLoss2D", "MseLoss", "L1Loss", "SmoothL1Loss", "HuberLoss"),
        *("BinaryCrossEntropy", "BinaryCrossEntropyWithLogits"),
    )
)
"""Autograd nodes of torch losses that are means by default."""
AROUND = ("MulBackward0", "DivBackward0", PLAIN, *PASSED_ON)
"""Autograd nodes of a script's arithmetic on a loss."""
TWICE = {
    "LogSoftmaxBackward0": ("SoftmaxBackward0", "cross_entropy takes the softmax of a softmax"),
    "BinaryCrossEntropyWithLogitsBackward0": (
        "SigmoidBackward0",
        "binary_cross_entropy_with_logits takes the sigmoid of a sigmoid",
    ),
}
"""By a loss's first node on the output: the model's redundant node, and the fault."""
SHAPES = (
    *("ViewBackward0", "UnsafeViewBackward0", "TransposeBackward0", "PermuteBackward0"),
    *("SqueezeBackward1", "SelectBackward0", "SliceBackward0", "ToCopyBackward0", "CloneBackward0"),
    *("ReshapeAliasBackward0", "TBackward0", "_DDPSinkBackward"),
)
"""Autograd nodes that keep an output's values."""
MEAN = 1
"""torch's number of that reduction (torch/nn/_reduction.py)."""
CASTS = 8
"""Maximum casts to remember of a pass."""
CAST = "ToCopyBackward0"
LABELLED = ("NllLossBackward0", "NllLoss2DBackward0")
"""Autograd nodes of a loss of labels; the second has those of rows."""
NONE, SUM = 0, 2
"""torch's numbers of no reduction, and of the sum (torch/nn/_reduction.py)."""
SUMMED = ("MulBackward0", "SumBackward0", "SumBackward1", "ReshapeAliasBackward0")
"""Autograd nodes of a masked sum."""
ELEMENTWISE = (
    *("SubBackward0", "PowBackward0", "AbsBackward0", "SqrtBackward0", "ExpandBackward0"),
    *("MseLossBackward0", "L1LossBackward0", "SmoothL1LossBackward0", "HuberLossBackward0"),
    *("BinaryCrossEntropyBackward0", "BinaryCrossEntropyWithLogitsBackward0", *AROUND),
)
"""Autograd nodes of a regression's loss."""
VIEWS = ("ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0")
"""Autograd nodes that give the same values another shape."""
TURNS = ("TransposeBackward0", "PermuteBackward0", "TBackward0")
"""Autograd nodes that exchange dimensions."""
BIAS = "AddBackward0"
"""The autograd node of a linear layer's bias, if it is added behind."""
LINEAR = ("AddmmBackward0", "MmBackward0")
"""Autograd nodes of a linear layer, of rows of its outputs."""


def nodes_of(*tensors: Any, most: float = NODES) -> Iterator[Any]:
    """The nodes next to a loss or other tensors, breadth first, each once."""
    coming = deque(getattr(tensor, "grad_fn", None) for tensor in tensors)
    seen = set[Any]()
    while coming and len(seen) < most:
        node = coming.popleft()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            coming.extend(before for before, _ in node.next_functions)


def before(made: Any, names: Collection[str]) -> Any:
    """The first node with another name, from this one on."""
    while made is not None and made.name() in names:
        made = made.next_functions[0][0]
    return made


def shape_of(node: Any) -> tuple[int, ...]:
    """The shape of what a node has made."""
    return tuple(METADATA.of(node)[0].shape)


def _makes_mean(node: Any) -> bool:
    """Whether an autograd node is a mean's."""
    name = "" if node is None else node.name()
    return name == PLAIN or (name in MEANS and REDUCTION.of(node) == MEAN)


def _is_mean(loss: Any) -> bool:
    """Whether a loss is an unscaled mean from torch."""
    made = getattr(loss, "grad_fn", None)
    if made is not None and made.name() == "MulBackward0" and dtypes.scaling:
        made = made.next_functions[0][0]
    return _makes_mean(before(made, PASSED_ON))


def factor_of_mean(loss: Any) -> float:
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
    return factor if _makes_mean(node) else 0.0


def _number(tensor: Any) -> float:
    """The value of a tensor of one element; 0 for one that would have to be waited for."""
    is_there = tensor.device.type == "cpu" and not tensor.requires_grad
    return float(tensor) if is_there else 0.0


def is_sum_of_labels(loss: Any) -> bool:
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


def done_twice(loss: Any) -> str:
    """The normalization that both loss and model apply to an output; empty if none."""
    made = before(getattr(loss, "grad_fn", None), AROUND)
    if made is not None and made.name().startswith("NllLoss"):
        made = made.next_functions[0][0]
    redundant, fault = TWICE.get("" if made is None else made.name(), ("", ""))
    output = before(made.next_functions[0][0], SHAPES) if fault else None
    return fault if output is not None and output.name() == redundant else ""


def broadcast(loss: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The shapes of an output and of its differences to values of another shape."""
    node = loss.grad_fn
    while node is not None and node.name() in ELEMENTWISE:
        following = next((one for one, _ in node.next_functions if one is not None), None)
        is_alone = sum(one is not None for one, _ in node.next_functions) == 1
        if following is None:
            return None
        if node.name() in ("SubBackward0", "ExpandBackward0") and is_alone:
            made, given = shape_of(node), shape_of(following)
            rows = max(given, default=0)
            is_row = given in ((rows,), (rows, 1), (1, rows))
            if is_row and rows > 1 and made == (rows, rows):
                return given, made
        node = following
    return None


def reshaped(loss: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The shapes of a linear layer's output and of the view that a loss of labels takes for it.

    The layer has an output for each class, and the view has the classes before the places.
    """
    node = before(getattr(loss, "grad_fn", None), AROUND)
    if node is None or node.name() not in LABELLED:
        return None
    node = before(node.next_functions[0][0], VIEWS)
    if node is None or node.name() != "LogSoftmaxBackward0":
        return None
    taken = shape_of(node)
    found = None
    node = node.next_functions[0][0]
    while node is not None and node.name() in (*SHAPES, BIAS) and node.name() not in TURNS:
        following = node.next_functions[0][0]
        if following is None:
            return None
        given = shape_of(following)
        if node.name() in VIEWS and _are_mixed(given, shape_of(node), taken):
            found = given
        node = following
    is_linear = node is not None and node.name() in LINEAR and shape_of(node)[-1:] == taken[1:2]
    return None if found is None or not is_linear else (found, taken)


def _are_mixed(given: tuple[int, ...], made: tuple[int, ...], taken: tuple[int, ...]) -> bool:
    """Whether a view of rows of classes has the classes before several places."""
    if made != taken or len(taken) < 3 or len(given) < 2:
        return False
    classes, places = taken[1], taken[2:]
    is_one = all(place == 1 for place in places)
    return given[-1] == classes > 1 and classes not in places and not is_one


class Passes:
    """The backward passes of the first steps.

    Attributes:
        is_open: whether to inspect further passes.
    """

    def __init__(self) -> None:
        self.is_open = True
        self._seen: Counter[tuple[int, str]] = Counter()  # by steps done, and the user's line

    def look(self, tensors: Any, gradients: Any = None) -> None:
        """Inspects a backward pass's tensors before it begins."""
        steps = observations.steps_of_all() or 0
        self.is_open = steps <= divided.STEPS and not is_called_by(*FRAMEWORKS)
        is_mean = False
        with observations.going_on():
            is_mean = self.is_open and gradients is None and _is_mean(tensors)
        self.is_open = is_mean
        if not is_mean:
            return
        where = user_place()
        self._seen[steps, where] += 1
        if steps == divided.STEPS:
            self.is_open = False
            counts = [n for (step, _), n in sorted(self._seen.items()) if step < steps]
            if {line for _, line in self._seen} == {where}:
                report(divided.summed(counts), where=where)


class StaleCasts:
    """Casts of the first steps' passes.

    Attributes:
        is_open: whether to look at further passes.
    """

    def __init__(self) -> None:
        self.is_open = True
        self._step = -1
        self._last: dict[Any, int] = {}  # by node: the version of its weight in the last step
        self._stale: dict[Any, int] = {}  # by node: the updates since

    def look(self, loss: Any) -> None:
        """Looks at the first backward pass after each step, before it begins."""
        step = observations.steps_of_all() or 0
        if step == self._step:
            return
        self._step = step
        now = _casts_of(loss) if _is_within_autocast(loss) else {}
        self._stale = {
            node: self._stale.get(node, 0) + (version > self._last[node])
            for node, version in now.items()
            if node in self._last
        }
        self._last = now
        updates = max(self._stale.values(), default=0)
        if updates >= updated.UPDATES:
            report_here(updated.computed_with_old(updates), step=step + 1)
        if updates >= updated.UPDATES or step >= updated.STEPS:
            self.is_open, self._last, self._stale = False, {}, {}


def _is_within_autocast(loss: Any) -> bool:
    """Whether the backward pass begins within a region, as the next steps may."""
    import torch

    has_kinds = hasattr(torch, "get_autocast_dtype")  # from torch 2.4 on
    return has_kinds and hasattr(loss, "device") and torch.is_autocast_enabled(loss.device.type)


def _casts_of(loss: Any) -> dict[Any, int]:
    """The casts of weights next to a loss, and the versions of these weights."""
    versions: dict[Any, int] = {}
    for node in nodes_of(loss):
        if node.name() == CAST and len(versions) < CASTS:
            weight = getattr(node.next_functions[0][0], "variable", None)
            if weight is not None:
                versions[node] = VERSION.of(weight)
    return versions
