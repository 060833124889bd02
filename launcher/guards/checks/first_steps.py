"""Records the first steps' losses and their inputs, to compare them with another attempt's.

A step ends when the next one's first backward pass begins; nothing waits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from types import ModuleType
from typing import Any

from ...checks.between_attempts import STEPS, encoded
from ...checks.between_ranks import Compared, Shared
from ...checks.finding import Check
from ...evidence.observations import observations
from ..callers import user_place
from ..divided_data import tensors_in
from .copies import Copy, copied
from .reporting import is_on, safely

HOOKED = ("torch.autograd",)
PASSES = 64
"""Maximum backward passes to record per step."""
LATE = 5
"""Steps to wait for the values of the last recorded step."""
DRAWN, SAMPLES = 32, 512
"""Maximum batches and samples to digest."""
BYTES = 1024
"""Bytes to digest of each tensor of a sample."""


@dataclass(slots=True)
class Noted:
    """A step's random states, batches drawn by its end, and losses of its passes."""

    random: str
    drawn: int = 0
    losses: list[Copy] = field(default_factory=list)


class FirstSteps:
    """The first steps of a process.

    Attributes:
        is_open: whether to record more.
        batches: number of recorded batches of loaders.
    """

    def __init__(self) -> None:
        self.is_open = True
        self.batches = 0
        self._is_passing = False
        self._place = ""
        self._noted: dict[int, Noted] = {}
        self._sent = 0
        self._drawn: list[tuple[int, int]] | None = []

    def draw(self, batch: Any) -> None:
        """Adds a batch's samples to sums that are independent of the batch division."""
        self.batches += 1
        if self._drawn is None:
            return
        count, digest = self._drawn[-1] if self._drawn else (0, 0)
        rows = list(digests_of(batch))
        if len(self._drawn) == DRAWN or count + len(rows) > SAMPLES:
            self._drawn = None  # too many
        elif rows:
            self._drawn.append((count + len(rows), (digest + sum(rows)) % (1 << 32)))

    def backward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps the backward pass; a nested one belongs to a checkpointed block."""
        import torch

        @functools.wraps(function)
        def noting(*args: Any, **kwargs: Any) -> Any:
            if not self.is_open or self._is_passing or torch.compiler.is_compiling():
                return function(*args, **kwargs)
            safely(Check.OURS, self._pass, args, kwargs)
            self._is_passing = True
            try:
                return function(*args, **kwargs)
            finally:
                self._is_passing = False

        return noting

    def _pass(self, args: Any, kwargs: Any) -> None:
        """Records a pass before it begins."""
        if not is_on(Check.OURS):
            self._end()
            return
        loss = args[0] if args else kwargs.get("tensors")
        step = (observations.steps_of_all() or 0) + 1
        noted = self._noted.get(step)
        if noted is None:
            for last in list(self._noted.values())[-1:]:
                last.drawn = len(self._drawn or ())
            self._send()
            self._place = self._place or user_place()
            noted = self._noted[step] = Noted(_random(loss))
            if self._sent == STEPS or len(self._noted) > STEPS + LATE:
                self._end()
                return
        copy = copied([loss.detach().reshape(-1)]) if loss.numel() == 1 else None
        if copy is None or len(noted.losses) == PASSES:
            self._end()
        else:
            noted.losses.append(copy)

    def _send(self) -> None:
        """Sends completed steps whose values have arrived."""
        for step, noted in list(self._noted.items())[self._sent : STEPS]:
            if not all(copy.is_there for copy in noted.losses):
                return
            self._sent += 1
            loss = sum(copy.parts()[0][0] for copy in noted.losses)
            value = encoded(loss, noted.random, (self._drawn or [])[: noted.drawn])
            observations.send(Compared(Shared.STEP, value, self._place, step))

    def _end(self) -> None:
        self.is_open = False
        self._noted, self._drawn = {}, None


def _random(tensor: Any) -> str:
    """Digest of torch's random states of the host and the computing device."""
    import torch

    states = [torch.get_rng_state()]
    if tensor.device.type != "cpu":
        states.append(getattr(torch, tensor.device.type).get_rng_state())
    return blake2b(b"".join(state.numpy().tobytes() for state in states), digest_size=8).hexdigest()


def digests_of(batch: Any) -> Iterator[int]:
    """Digests of a batch's samples; none unless the batch is rows on the host."""
    import torch

    tensors = [tensor.detach() for tensor in tensors_in(batch) if tensor.ndim]
    if not tensors or any(
        tensor.device.type != "cpu" or len(tensor) != len(tensors[0]) for tensor in tensors
    ):
        return
    rows = [
        rows.flatten(1).contiguous().view(torch.uint8).numpy()
        for rows in (tensor if tensor.ndim > 1 else tensor.reshape(-1, 1) for tensor in tensors)
    ]
    for sample in zip(*rows, strict=True):
        content = b"|".join(part[:BYTES].tobytes() for part in sample)
        yield int.from_bytes(blake2b(content, digest_size=4).digest(), "little")


first_steps = FirstSteps()


def install(module: ModuleType) -> None:
    """Wraps `backward` to record losses."""
    module.backward = first_steps.backward(module.backward)  # type: ignore[attr-defined]
