"""Compares the samples of the first batches between ranks: none should have another's.

Digests of a bounded number of samples are sent, so that a part of a data set that two ranks have is
noticed if the part or the data set is small.
"""

from __future__ import annotations

from typing import Any

from ...checks.between_ranks import Compared, Shared, sketched
from ...evidence.observations import observations
from .. import data_parallel
from ..callers import user_place
from ..divided_data import tensors_in
from .first_steps import digests_of

BATCHES, SAMPLES = 64, 512
"""Maximum batches and samples to digest."""
MOST = 256
"""Maximum batches to look at, also those of evaluations."""
EARLY = 10
"""Batches after which digests are sent for the first time."""


class Overlap:
    """The samples of a process's batches after its first step.

    Attributes:
        is_open: whether to take further batches.
    """

    def __init__(self) -> None:
        self.is_open = True
        self._digests: list[int] = []
        self._looked = self._batches = 0
        self._rows = 0  # of the last batch
        self._is_whole = False  # the model takes all of a batch
        self._place = ""

    def begin(self) -> None:
        """Ends with the first epoch: its samples may come again."""
        if self._digests:
            self._end()

    def draw(self, batch: Any) -> None:
        """Takes a batch that a loader has returned."""
        import torch

        self._looked += 1
        if self._looked > MOST or data_parallel.world() < 2:
            self._end()
            return
        tensor = next(tensors_in(batch), None)
        self._rows = len(tensor) if tensor is not None and tensor.ndim else 0
        is_training = torch.is_grad_enabled() and all(
            model.training for model in data_parallel.dividing()
        )
        if not is_training or not self._is_whole or not observations.steps_of_all():
            return
        self._place = self._place or user_place()
        self._digests += digests_of(batch)
        self._batches += 1
        if self._batches == EARLY:
            self._send(EARLY)
        if self._batches == BATCHES or len(self._digests) >= SAMPLES:
            self._end()

    def passes(self, inputs: Any) -> None:
        """Notes whether a training model's inputs have as many samples as the last batch."""
        self._is_whole = any(tensor.shape[:1] == (self._rows,) for tensor in tensors_in(inputs))

    def _end(self) -> None:
        self.is_open = False
        self._send()

    def _send(self, step: int | None = None) -> None:
        if self._digests:
            sketch = sketched(self._digests)
            observations.send(Compared(Shared.SAMPLES, sketch, self._place, step))


overlap = Overlap()
