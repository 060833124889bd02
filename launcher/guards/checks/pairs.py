"""Looks for samples that a contrastive batch has twice, in what the model is given."""

from __future__ import annotations

from typing import Any

from ...checks import given
from ...checks.finding import BATCHES, Check
from ...checks.given import Pairs
from ...evidence.observations import observations
from .calls import Call, Watch, running
from .copies import Facts, is_plain
from .reporting import report

LATE = 8
"""Steps to look at, and to wait for values."""
FIELDS = 4
"""Maximum tensors of a batch to look at."""
ELEMENTS = 1 << 24
"""Maximum elements to compare."""
LEAST = 4
"""Least samples of a batch."""


class ContrastiveBatches(Watch):
    """The contrastive batches of a process's first steps."""

    check = Check.DATA

    def __init__(self) -> None:
        super().__init__()
        self._facts = Facts(BATCHES)

    def look(self, call: Call) -> None:
        """Looks at a cross entropy within a model's forward."""
        steps = observations.steps_of_all() or 0
        self.is_open = steps < LATE
        if not call.is_trained:
            return
        if not self._facts.are_enough and steps not in self._facts:
            self._note(call.argument(0, "input"), call.argument(1, "target"), steps)
        elif self._facts.are_there:
            self.is_open = False
            batches = [_pairs(*parts) for parts in self._facts.parts()]
            report(given.false_negatives(batches), where=self._facts.where)

    def _note(self, scores: Any, target: Any, steps: int) -> None:
        """Begins to read whether labels are the samples' places, and rows are equal."""
        import torch

        if not (is_plain(scores) and is_plain(target)) or (scores.ndim, target.ndim) != (2, 1):
            return
        rows = len(scores)
        if target.is_floating_point() or not LEAST <= rows <= scores.shape[1]:
            return
        most = ELEMENTS // rows**2
        fields = [each for each in running().words if len(each) == rows]
        fields = [each for each in fields if 1 < each.shape[1] <= most][:FIELDS]
        if not fields:
            return
        places = torch.arange(rows, device=target.device)
        facts = [torch.full_like(target[0], rows), (target - target[0] == places).all()]
        for field in fields:
            is_same = (field[:, None] == field[None]).all(-1)
            is_text = field.max() > 1  # and no mask
            facts.append(is_same.tril(-1).any(1).sum() * is_text)
        self._facts.add(*facts, call=steps)


contrastive_batches = ContrastiveBatches()
"""Those of this process."""


def _pairs(size: list[float], are_pairs: list[float], *repeated: list[float]) -> Pairs:
    """What was read of a batch."""
    rows = int(size[0])
    counts = [int(count) for (count,) in repeated if count < rows - 1]  # not one text for all
    return Pairs(rows, are_pairs[0] > 0, max(counts, default=0))
