"""Looks at what torch's losses are given in a training's first calls, and how they weigh tokens.

Tokens' weights are the gradient of each mean over labels, or of each label's loss.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ...checks import divided, given
from ...checks.divided import Masked, Mean
from ...checks.finding import Check
from ...checks.given import Given
from ...evidence.observations import observations
from ..callers import is_called_by, user_place
from .calls import Call, Watch
from .copies import Facts, is_captured, is_plain
from .reporting import report, safely
from .schedules import schedules
from .texts import IGNORED

MOST = 4
"""Maximum lines to look at."""
LATE = 64
"""Calls of a line after which its values are no longer waited for."""
ELEMENTS = 1 << 17
"""Maximum elements of a tensor to look at."""
ROWS = 4
"""Least rows to look at, however many classes they have."""
STEPS = 8
"""Steps to look at tokens' weights, and to wait for values."""
PASSES = 32
"""Maximum micro batches of a step."""
TRAINERS = ("transformers.trainer", "trl.trainer")
"""Modules whose losses of tokens other checks look at."""
TOKENS = 1 << 22
"""Maximum losses of single tokens to look at."""


@dataclass(frozen=True, slots=True)
class Line:
    """A loss at a line of the user's, as its first call has it.

    Attributes:
        facts: values of the first calls.
        classes: the length of a row of `kl_div`; 0 of others.
        is_mean: whether `kl_div` is torch's mean.
        is_logarithm: whether targets of `kl_div` are to be logarithms.
    """

    facts: Facts
    classes: int = 0
    is_mean: bool = False
    is_logarithm: bool = False


class LossInputs(Watch):
    """What losses of probabilities are given in a process's first steps."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: dict[tuple[str, str], Line | None] = {}  # None for what is judged
        self._calls: Counter[tuple[str, str]] = Counter()

    def look(self, call: Call) -> None:
        """Looks at a call with gradients, and judges a line's first."""
        if not call.is_trained:
            return
        line = user_place(), call.name
        if line not in self._lines and len(self._lines) < MOST:
            self._lines[line] = _line(call) if _is_judged(call) else None
        known = self._lines.get(line)
        if known is None:
            is_waiting = any(each is not None for each in self._lines.values())
            self.is_open = is_waiting or len(self._lines) < MOST
            return
        self._calls[line] += 1
        if not known.facts.are_enough:
            _note_values(call, known.facts)
        elif known.facts.have_arrived:
            _judge(call.name, known)
            self._lines[line] = None
        if self._calls[line] >= LATE:
            self._lines[line] = None


def _line(call: Call) -> Line:
    facts = Facts(given.CALLS)
    if call.name != "kl_div":
        return Line(facts)
    is_mean = call.argument(4, "reduction", "mean") == "mean"
    return Line(facts, _input(call).shape[-1], is_mean, bool(call.argument(5, "log_target")))


def _is_judged(call: Call) -> bool:
    """Whether a call is looked at, and others at its line."""
    first = _input(call)
    is_alone = call.name == "ctc_loss"
    if not is_plain(first) or not (is_alone or is_plain(call.argument(1, "target"))):
        return False
    if call.name.startswith("binary"):
        place = 4 if call.name == "binary_cross_entropy" else 5
        # Values to be left out can be anything if they are masked later.
        is_whole = call.argument(place, "reduction", "mean") != "none"
        return is_whole and call.argument(2, "weight") is None
    return bool(first.ndim) and first.shape[_dim(call, first)] > 1


def _input(call: Call) -> Any:
    return call.argument(0, "log_probs" if call.name == "ctc_loss" else "input")


def _dim(call: Call, tensor: Any) -> int:
    """The dimension of the classes."""
    return 1 if call.name == "nll_loss" and tensor.ndim > 1 else -1


def _note_values(call: Call, facts: Facts) -> None:
    """Begins to copy the values of a `Given`."""
    import torch

    first, target = _input(call), call.argument(1, "target")
    is_compared = call.name.startswith(("binary", "kl"))
    if not is_plain(first) or (is_compared and not is_plain(target)):
        return
    with torch.no_grad():
        parts = [torch.zeros(2, device=first.device)] * 3
        if not call.name.startswith("binary"):
            dim = _dim(call, first)
            rows = _some_of(first.detach(), dim).float()
            sums, masses = rows.sum(dim), rows.clamp(max=40).exp().sum(dim)
            parts = [torch.stack([part.max(), part.min()]) for part in (rows, sums, masses)]
        if is_compared:
            values = _some_of(target.detach()).float()
            parts.append(torch.stack([values.max(), values.min()]))
        facts.add(*parts)


def _some_of(tensor: Any, dim: int | None = None) -> Any:
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


def _judge(name: str, line: Line) -> None:
    """Reports the faults of a line's first calls of a loss."""
    calls = [Given(*chain.from_iterable(parts)) for parts in line.facts.parts()]
    if name.startswith("binary"):
        found = [given.outside(name, calls)]
    else:
        found = [given.no_logarithms(name, calls, is_normalizing=name == "nll_loss")]
    if name == "kl_div":
        found.append(given.no_probabilities(calls, is_logarithm=line.is_logarithm))
    if line.is_mean:
        found.append(given.divided_by_classes(line.classes, calls))
    report(*found, where=line.facts.where)


class TokenLosses(Watch):
    """How a process's first losses of labels, at the line of the first, weigh tokens."""

    check = Check.DIVIDED

    def __init__(self) -> None:
        super().__init__()
        self._first: tuple[str, str] | None = None  # its line, and its reduction
        self._passes: dict[tuple[int, int], Facts] = {}  # by steps, and backward passes before

    def look(self, call: Call) -> None:
        """Notes a loss of labels."""
        steps = observations.steps_of_all() or 0
        if steps >= STEPS:
            self.is_open = False
        if not call.is_trained:
            return
        target, kind = call.argument(1, "target"), call.argument(6, "reduction", "mean")
        if not is_plain(target) or target.is_floating_point() or kind not in ("mean", "none"):
            return
        this = user_place(), kind
        if self._first is None:
            if is_called_by(*TRAINERS):
                self.is_open = False
                return
            self._first = this
        if this != self._first:
            return
        if steps >= divided.STEPS:
            self._judge(*this)
            return
        key = (steps, schedules.passes)
        is_full = sum(step == steps for step, _ in self._passes) >= PASSES
        labelled = target.detach() != call.argument(4, "ignore_index", IGNORED)
        is_odd = kind == "none" and labelled.shape != call.made.shape
        if key in self._passes or is_full or is_odd or call.made.numel() > TOKENS:
            self.is_open = False  # several losses of a pass
            return
        facts = self._passes[key] = Facts(1)

        def trained(gradients: Any) -> None:
            import torch

            if not torch.compiler.is_compiling() and gradients[0] is not None:
                safely(Check.DIVIDED, _note_weights, facts, gradients[0], labelled)

        call.made.grad_fn.register_prehook(trained)  # the tensor stays without hooks

    def _judge(self, where: str, kind: str) -> None:
        """Judges the first steps once their values have arrived."""
        if not all(facts.have_arrived for facts in self._passes.values()):
            return
        self.is_open = False
        by_step: list[list[list[float]]] = [[] for _ in range(divided.STEPS)]
        for (step, _), facts in self._passes.items():
            noted = facts.parts()
            # A pass that nothing was trained by, or twice, isn't a micro batch.
            if len(noted) != 1:
                return
            by_step[step].append([values[0] for values in noted[0]])
        if kind == "mean":
            means = [[Mean(*values[:3]) for values in passes] for passes in by_step]
            report(divided.unlike_weights(means), where=where)
        else:
            batches = [Masked(*values) for passes in by_step for values in passes[:1]]
            report(divided.divided_by_all(batches), where=where)


def _note_weights(facts: Facts, gradient: Any, labelled: Any) -> None:
    """Begins to copy what a `Mean` or `Masked` has, during a backward pass."""
    import torch

    if is_captured(gradient.device):
        return
    with torch.no_grad():
        label_count, size = labelled.sum(), gradient.detach().float()
        total = torch.full_like(label_count, labelled.numel())
        if gradient.numel() == 1 and labelled.shape != gradient.shape:
            facts.add(label_count, total, size)
            return
        size = size.abs()
        has = size > 0
        least = torch.where(has, size, torch.inf).min()
        facts.add(total, (has & labelled).sum(), label_count, size.max(), least)


loss_inputs, token_losses = LossInputs(), TokenLosses()
"""Those of this process."""
