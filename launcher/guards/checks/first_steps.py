"""Records the first steps' losses, their inputs and the random values that a loop draws.

Losses and inputs are compared with another attempt's. A step ends when the next one's first
backward pass begins; nothing waits. Draws are compared between ranks, from the second step to the
third. Loops that draw all of their data are left out: most are tries, without a seed for each rank.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from types import ModuleType
from typing import Any

from ...checks import data
from ...checks.between_attempts import STEPS, encoded
from ...checks.between_ranks import Compared, Shared
from ...checks.finding import Check
from ...evidence.observations import observations
from .. import data_parallel
from ..callers import place, user_frames, user_place
from ..divided_data import tensors_in
from .copies import ELEMENTS, Facts
from .replicas import digest_of
from .reporting import is_on, report, safely

PASSES = 64
"""Maximum backward passes to record per step."""
LATE = 5
"""Steps to wait for the values of the last recorded step."""
DRAWN, SAMPLES = 32, 512
"""Maximum batches and samples to digest."""
BYTES = 1024
"""Bytes to digest of each tensor of a sample."""
HOOKED = ("torch.optim.optimizer",)
DRAWING = ("rand", "rand_like", "randint", "randint_like", "randn", "randn_like")
"""torch's functions that draw; those that permute samples must often be equal on all ranks."""
LEAST = 8
"""Elements of a draw that isn't a decision, which ranks may have to make alike."""


@dataclass(slots=True)
class Noted:
    """A step's random states, batches drawn by its end, and losses of its passes."""

    random: str
    drawn: int = 0
    losses: Facts = field(default_factory=lambda: Facts(PASSES))


class FirstSteps:
    """The first steps of a process.

    Attributes:
        is_open: whether to record more.
        batches: number of recorded batches of loaders.
    """

    def __init__(self) -> None:
        self.is_open = True
        self.batches = 0
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

    def look(self, loss: Any) -> None:
        """Records a pass before it begins; a nested one belongs to a checkpointed block."""
        if not is_on(Check.OURS):
            self._end()
            return
        step = (observations.steps_of_all() or 0) + 1
        noted = self._noted.get(step)
        if noted is None:
            for last in list(self._noted.values())[-1:]:
                last.drawn = len(self._drawn or ())
            self._send()
            self._place = self._place or user_place()
            noted = self._noted[step] = Noted(random_states(loss))
            if self._sent == STEPS or len(self._noted) > STEPS + LATE:
                self._end()
                return
        if loss.numel() != 1 or noted.losses.are_enough or not noted.losses.add(loss):
            self._end()

    def _send(self) -> None:
        """Sends completed steps whose values have arrived."""
        for step, noted in list(self._noted.items())[self._sent : STEPS]:
            if not noted.losses.have_arrived:
                return
            self._sent += 1
            loss = sum(value for ((value,),) in noted.losses.parts())
            value = encoded(loss, noted.random, (self._drawn or [])[: noted.drawn])
            observations.send(Compared(Shared.STEP, value, self._place, step))

    def _end(self) -> None:
        self.is_open = False
        self._noted, self._drawn = {}, None


def random_states(tensor: Any) -> str:
    """Digest of torch's random states of the host and a tensor's device."""
    import torch

    states = [torch.get_rng_state()]
    device = getattr(tensor, "device", None)
    if device is not None and device.type != "cpu":
        states.append(getattr(torch, device.type).get_rng_state(device))
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


class Draws:
    """The user's first line that draws in every step, and its values.

    Attributes:
        is_over: whether to stop watching.
    """

    def __init__(self) -> None:
        self.is_over = False
        self._first: Any = None
        self._steps = 0
        self._drawn = Facts(3)  # those of each step
        self._wrapped: dict[str, tuple[Any, Any]] = {}  # by name: the wrapper, and the original

    def step(self, optimizer: Any) -> None:
        """Begins after the first step; compares after the third."""
        self._first = self._first or id(optimizer)
        if id(optimizer) != self._first:
            return
        self._steps += 1
        if self._steps == 1 and data_parallel.replicated():
            self._watch()
        elif self._steps >= 3:
            self.is_over = True
            self._put_back()
            if first_steps.batches and len(self._drawn) > 1 and self._drawn.have_arrived:
                rows, where = [row for (row,) in self._drawn.parts()], self._drawn.where
                if rows[0] == rows[1] and len({*rows[0]}) > 1:
                    report(data.DRAWN_AGAIN.found(self._steps), where=where)
                elif all(len({*row}) > 1 for row in rows):
                    digest = digest_of(*rows)
                    observations.send(Compared(Shared.DRAWS, digest, where, self._steps))

    def _watch(self) -> None:
        """Wraps torch's functions for these steps; compiled code has the original ones."""
        import torch

        for name in DRAWING:
            original = getattr(torch, name)
            self._wrapped[name] = self._noting(original), original
            setattr(torch, name, self._wrapped[name][0])

    def _put_back(self) -> None:
        """Sets the functions back, unless the script has replaced them in the meantime."""
        import torch

        for name, (wrapper, original) in self._wrapped.items():
            if getattr(torch, name) is wrapper:
                setattr(torch, name, original)

    def _noting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        @functools.wraps(function)
        def drawing(*args: Any, **kwargs: Any) -> Any:
            drawn = function(*args, **kwargs)
            if not torch.compiler.is_compiling() and kwargs.get("generator") is None:
                frame = sys._getframe(1)
                file, line = frame.f_code.co_filename, frame.f_lineno
                safely(Check.DATA, self._note, drawn, file, line)
            return drawn

        return drawing

    def _note(self, drawn: Any, file: str, line: int) -> None:
        import torch

        if drawn.numel() < LEAST or not torch.is_grad_enabled() or len(self._drawn) >= self._steps:
            return
        is_same = self._drawn.where in ("", place(file, line))
        if is_same and next(user_frames(), ("", 0)) == (file, line):
            self._drawn.add(drawn.reshape(-1)[:ELEMENTS])


first_steps = FirstSteps()


def install(module: ModuleType) -> None:
    """Watches draws between two steps of an optimizer."""
    draws = Draws()

    def stepped(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        # Asked here: an import that reads a worker's variable can't be shared by all workers.
        if not draws.is_over and is_on(Check.DATA):  # the hook stays, as torch iterates over it
            safely(Check.DATA, draws.step, optimizer)

    module.register_optimizer_step_post_hook(stepped)
