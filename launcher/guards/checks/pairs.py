"""Looks for samples that a contrastive batch has twice, in what the model is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...checks import paired
from ...checks.finding import Check
from ...checks.paired import Pairs
from ...evidence.observations import observations
from ..callers import user_place
from ..divided_data import tensors_in
from .copies import Copy, copied
from .loss_inputs import argument, is_plain
from .reporting import report
from .stacks import running

LATE = 8
"""Steps to look at, and to wait for values."""
FIELDS = 4
"""Maximum tensors of a batch to look at."""
ELEMENTS = 1 << 24
"""Maximum elements to compare."""
LEAST = 4
"""Least samples of a batch."""


class ContrastiveBatches:
    """The contrastive batches of a process's first steps.

    Attributes:
        check: the check.
        is_open: whether to look at further calls.
    """

    check = Check.DATA

    def __init__(self) -> None:
        self.is_open = True
        self._noted: dict[int, tuple[int, Copy]] = {}  # by step: samples, and facts
        self._place = ""

    def look(
        self, _name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], made: Any, /
    ) -> None:
        """Looks at a cross entropy within a model's forward."""
        steps = observations.steps_of_all() or 0
        self.is_open = steps < LATE
        if not getattr(made, "requires_grad", False):
            return
        if len(self._noted) < paired.BATCHES and steps not in self._noted:
            self._note(argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "target"))
            return
        copies = [copy for _, copy in self._noted.values()]
        if len(copies) == paired.BATCHES and all(copy.is_there for copy in copies):
            self.is_open = False
            batches = [_pairs(*noted) for noted in self._noted.values()]
            report(paired.false_negatives(batches), where=self._place)

    def _note(self, scores: Any, target: Any) -> None:
        """Begins to read whether labels are the samples' places, and rows are equal."""
        import torch

        if not (is_plain(scores) and is_plain(target)) or (scores.ndim, target.ndim) != (2, 1):
            return
        rows = len(scores)
        if target.is_floating_point() or not LEAST <= rows <= scores.shape[1]:
            return
        now = running()
        fields = [
            each
            for each in tensors_in((now.args, now.kwargs))
            if is_plain(each) and each.ndim == 2 and each.dtype is torch.int64
            if len(each) == rows and 1 < each.shape[1] <= ELEMENTS // rows**2
        ][:FIELDS]
        if not fields:
            return
        places = torch.arange(rows, device=target.device)
        facts = [(target - target[0] == places).all()]
        for field in fields:
            is_same = (field[:, None] == field[None]).all(-1)
            is_text = field.max() > 1  # and no mask
            facts.append(is_same.tril(-1).any(1).sum() * is_text)
        copy = copied([fact.float().reshape(1) for fact in facts])
        if copy is not None:
            self._place = self._place or user_place()
            self._noted[observations.steps_of_all() or 0] = rows, copy


contrastive_batches = ContrastiveBatches()
"""Those of this process."""


def _pairs(rows: int, copy: Copy) -> Pairs:
    """What was read of a batch."""
    [are_pairs], *repeated = copy.parts()
    counts = [int(count) for (count,) in repeated if count < rows - 1]  # not one text for all
    return Pairs(rows, are_pairs > 0, max(counts, default=0))
