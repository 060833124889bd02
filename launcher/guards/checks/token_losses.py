"""Looks at how losses of labels weigh tokens: by the gradient of each mean, and of each loss."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from ...checks import divided
from ...checks.divided import Masked, Mean
from ...checks.finding import Check
from ...evidence.observations import observations
from ..callers import user_place
from .copies import Copy, copied, is_captured
from .loss_inputs import argument, is_plain
from .reporting import report, safely
from .schedules import schedules
from .texts import IGNORED

LATE = 8
"""Steps to look at, and to wait for values."""
PASSES = 32
"""Maximum micro batches of a step."""
TRAINERS = ("transformers.trainer", "trl.trainer.")
"""Beginnings of modules' names whose losses other checks look at."""
ELEMENTS = 1 << 22
"""Maximum losses of single tokens to look at."""


class TokenLosses:
    """The losses of labels of a process's first steps.

    Attributes:
        check: the check.
        is_open: whether to look at further calls.
    """

    check = Check.DIVIDED

    def __init__(self) -> None:
        self.is_open = True
        self._where = ""
        self._kind = ""
        self._passes: dict[tuple[int, int], list[Copy]] = {}  # by steps, and backward passes before

    def look(self, _name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], made: Any) -> None:
        """Notes a loss of labels, at the line of the first."""
        import torch

        steps = observations.steps_of_all() or 0
        if steps >= LATE:
            self.is_open = False
        if not getattr(made, "requires_grad", False) or is_captured(made.device):
            return
        target = argument(args, kwargs, 1, "target")
        kind = argument(args, kwargs, 6, "reduction", "mean")
        if not is_plain(target) or target.is_floating_point() or kind not in ("mean", "none"):
            return
        where = user_place()
        if not self._where:
            if _is_trainers():
                self.is_open = False
                return
            self._where, self._kind = where, kind
        if where != self._where or kind != self._kind:
            return
        if steps >= divided.STEPS:
            self._judge()
            return
        key = (steps, schedules.passes)
        is_full = sum(step == steps for step, _ in self._passes) >= PASSES
        if key in self._passes or is_full or made.numel() > ELEMENTS:
            self.is_open = False  # several losses of a pass
            return
        copies = self._passes[key] = list[Copy]()
        ignored = argument(args, kwargs, 4, "ignore_index", IGNORED)
        labelled = target.detach() != ignored
        if kind == "none" and labelled.shape != made.shape:
            self.is_open = False
            return

        def trained(gradients: Any) -> None:
            if not torch.compiler.is_compiling() and gradients[0] is not None:
                safely(Check.DIVIDED, _note, copies, gradients[0], labelled)

        made.grad_fn.register_prehook(trained)  # the tensor stays without hooks

    def _judge(self) -> None:
        """Judges the first steps once their values have arrived."""
        copies = [copy for noted in self._passes.values() for copy in noted]
        if not all(copy.is_there for copy in copies):
            return
        self.is_open = False
        by_step: list[list[list[float]]] = [[] for _ in range(divided.STEPS)]
        for (step, _), noted in self._passes.items():
            # A pass that nothing was trained by, or twice, isn't a micro batch.
            if len(noted) != 1:
                return
            by_step[step].append([values[0] for values in noted[0].parts()])
        if self._kind == "mean":
            means = [[Mean(*values[:3]) for values in passes] for passes in by_step]
            report(divided.unlike_weights(means), where=self._where)
        else:
            batches = [Masked(*values) for passes in by_step for values in passes[:1]]
            report(divided.divided_by_all(batches), where=self._where)


token_losses = TokenLosses()
"""Those of this process."""


def _note(copies: list[Copy], gradient: Any, labelled: Any) -> None:
    """Begins to copy what a `Mean` or `Masked` has, during a backward pass."""
    import torch

    if is_captured(gradient.device):
        return
    with torch.no_grad():
        label_count = labelled.sum().float().reshape(1)
        total = torch.full_like(label_count, labelled.numel())
        if gradient.numel() == 1 and labelled.shape != gradient.shape:
            facts = [label_count, total, gradient.detach().float().reshape(1)]
        else:
            size = gradient.detach().float().abs()
            has = size > 0
            least = torch.where(has, size, torch.inf).min()
            both = (has & labelled).sum().float()
            facts = [total, both.reshape(1), label_count, size.max().reshape(1), least.reshape(1)]
        copy = copied(facts)
    if copy is not None:
        copies.append(copy)


def _is_trainers() -> bool:
    """Whether a Trainer computes the loss."""
    frame = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(TRAINERS):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
