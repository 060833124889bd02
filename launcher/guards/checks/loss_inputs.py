"""Looks at what losses of probabilities are given in a training's first calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...checks import given
from ...checks.finding import Check
from ...checks.given import Given
from ..callers import user_place
from .copies import Copy, copied, is_captured
from .reporting import report

MOST = 4
"""Maximum lines to look at."""
LATE = 64
"""Calls of a line after which its values are no longer waited for."""
ELEMENTS = 1 << 17
"""Maximum elements of a tensor to look at."""
ROWS = 4
"""Least rows to look at, however many classes they have."""


def argument(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], place: int, name: str, default: Any = None
) -> Any:
    """An argument of a call, by its place or name."""
    return args[place] if len(args) > place else kwargs.get(name, default)


def is_plain(tensor: Any) -> bool:
    """Whether a tensor's values can be read without an effect on the training."""
    import torch

    is_known = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    is_whole = is_known and tensor.layout is torch.strided and not tensor.is_meta
    return is_whole and tensor.numel() > 0 and not is_captured(tensor.device)


def some_of(tensor: Any, dim: int | None = None) -> Any:
    """A view of a tensor's elements at regular distances, with a dimension as a whole."""
    left = ELEMENTS
    if dim is not None:
        dim %= tensor.ndim
        left = max(ROWS, ELEMENTS // tensor.shape[dim])
    for place in range(tensor.ndim):
        if place != dim:
            step = -(-tensor.shape[place] // left)
            tensor = tensor[(slice(None),) * place + (slice(None, None, step),)]
            left = max(1, left // tensor.shape[place])
    return tensor


@dataclass(slots=True)
class Line:
    """The first calls at one line.

    Attributes:
        function: the loss.
        classes: the length of a row.
        is_mean: whether it is torch's mean.
        is_logarithm: whether targets are to be logarithms.
        calls: how many there have been.
        copies: values of the first.
    """

    function: str
    classes: int = 0
    is_mean: bool = False
    is_logarithm: bool = False
    calls: int = 0
    copies: list[Copy] = field(default_factory=list)


class LossInputs:
    """The losses of a process's first steps.

    Attributes:
        check: the check.
        is_open: whether to look at further calls.
    """

    check = Check.TRAINED

    def __init__(self) -> None:
        self.is_open = True
        self._lines: dict[str, Line | None] = {}  # by the user's line; None of a judged one

    def look(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], made: Any) -> None:
        """Looks at a call with gradients, and judges a line's first."""
        if not getattr(made, "requires_grad", False):
            return
        where = user_place()
        if where not in self._lines and len(self._lines) < MOST:
            self._lines[where] = _line(name, args, kwargs)
        line = self._lines.get(where)
        if line is None:
            self.is_open = len(self._lines) < MOST or any(self._lines.values())
            return
        line.calls += 1
        if len(line.copies) < given.CALLS:
            copy = _copied(name, args, kwargs)
            if copy is not None:
                line.copies.append(copy)
        elif all(copy.is_there for copy in line.copies):
            _judge(line, where)
            self._lines[where] = None
        if line.calls >= LATE:
            self._lines[where] = None


loss_inputs = LossInputs()
"""The losses of this process."""


def _line(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Line | None:
    """How a loss is called; None if it isn't looked at."""
    tensors = [argument(args, kwargs, place, key) for place, key in enumerate(("input", "target"))]
    if name == "ctc_loss":
        tensors = [argument(args, kwargs, 0, "log_probs")]
    if not all(map(is_plain, tensors)):
        return None
    if name.startswith("binary"):
        place = 4 if name == "binary_cross_entropy" else 5
        # Values to be left out can be anything if they are masked later.
        is_masked = argument(args, kwargs, 2, "weight") is not None
        is_masked |= argument(args, kwargs, place, "reduction", "mean") == "none"
        return None if is_masked else Line(name)
    is_mean = name == "kl_div" and argument(args, kwargs, 4, "reduction", "mean") == "mean"
    classes = int(tensors[0].shape[_dim(name, tensors[0])]) if tensors[0].ndim else 0
    is_logarithm = name == "kl_div" and bool(argument(args, kwargs, 5, "log_target"))
    return Line(name, classes, is_mean, is_logarithm) if classes > 1 else None


def _dim(name: str, tensor: Any) -> int:
    """The dimension of the classes."""
    return 1 if name == "nll_loss" and tensor.ndim > 1 else -1


def _copied(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Copy | None:
    """Begins to copy the values of a `Given`."""
    import torch

    first = argument(args, kwargs, 0, "log_probs" if name == "ctc_loss" else "input")
    target = argument(args, kwargs, 1, "target")
    is_compared = name.startswith(("binary", "kl"))
    if not is_plain(first) or (is_compared and not is_plain(target)):
        return None
    with torch.no_grad():
        facts = [torch.zeros(2, device=first.device)] * 3
        if not name.startswith("binary"):
            rows = some_of(first.detach(), _dim(name, first)).float()
            dim = _dim(name, first)
            sums, masses = rows.sum(dim), rows.clamp(max=40).exp().sum(dim)
            facts = [torch.stack([part.max(), part.min()]) for part in (rows, sums, masses)]
        if is_compared:
            values = some_of(target.detach()).float()
            facts.append(torch.stack([values.max(), values.min()]))
        return copied(facts)


def _judge(line: Line, where: str) -> None:
    """Reports the faults of a line's first calls."""
    calls = [_given(*copy.parts()) for copy in line.copies]
    if line.function.startswith("binary"):
        report(given.outside(line.function, calls), where=where)
        return
    is_row = line.function == "nll_loss"
    report(given.no_logarithms(line.function, calls, is_normalizing=is_row), where=where)
    if line.function == "kl_div":
        report(given.no_probabilities(calls, is_logarithm=line.is_logarithm), where=where)
    if line.is_mean:
        report(given.divided_by_classes(line.classes, calls), where=where)


def _given(
    rows: list[float], sums: list[float], masses: list[float], target: list[float] | None = None
) -> Given:
    most, least = rows
    return Given(most, least, sums[1], sums[0], *masses, *(target or (0.0, 0.0)))
