"""The training that every advised script does: one model, one stream of samples, three steps.

A script has a function for each way that an entry advises. It trains with a `Task`, and tells it
each loss and each step; the test compares these with those of one process that sees the global
batch at once.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

STEPS = 3
MICRO_BATCH = 2
RANKS = 2
RATE = 0.1
"""Of plain SGD, so that the first update is the first gradient."""


class Net(nn.Module):
    """A small regression, whose loss is a mean over samples."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 1)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The loss."""
        return functional.mse_loss(self.second(torch.tanh(self.first(inputs))), labels)


class Towers(Net):
    """With a tower that only some samples need, and so not every micro batch of each rank.

    Where it is fed a dummy, it takes part in every pass.
    """

    def __init__(self, dummy: bool = False) -> None:
        super().__init__()
        self.tower = nn.Linear(4, 8)
        self.dummy = dummy

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The loss."""
        hidden = torch.tanh(self.first(inputs))
        needed = inputs[:, :1] > 0
        if needed.any():
            hidden = hidden + needed * self.tower(inputs)
        elif self.dummy:
            hidden = hidden + 0.0 * self.tower(torch.zeros_like(inputs)).sum()
        return functional.mse_loss(self.second(hidden), labels)


class Blocks(Net):
    """With a block that runs twice, checkpointed or not."""

    def __init__(self, reentrant: bool | None = None) -> None:
        super().__init__()
        self.block = nn.Linear(8, 8)
        self.reentrant = reentrant

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The loss."""
        hidden = torch.tanh(self.first(inputs))
        for _time in range(2):
            if self.reentrant is None:
                hidden = hidden + self.block(hidden)
            else:
                again = checkpoint(self.block, hidden, use_reentrant=self.reentrant)
                hidden = hidden + again
        return functional.mse_loss(self.second(hidden), labels)


def partly_frozen() -> Net:
    """A bias isn't trained."""
    model = Net()
    model.first.bias.requires_grad_(False)
    return model


@dataclass
class Task:
    """What is trained, and what has been seen of it.

    Attributes:
        accumulation: micro batches of a step.
        losses: of each micro batch of this rank.
        weights: all of them, after each step.
    """

    accumulation: int
    losses: list[float] = field(default_factory=list)
    weights: list[list[float]] = field(default_factory=list)
    rank: int = int(os.environ.get("RANK", "0"))

    def samples(self) -> list[dict[str, Tensor]]:
        """All, in their order."""
        number = STEPS * self.accumulation * RANKS * MICRO_BATCH
        chance = torch.Generator().manual_seed(1)
        inputs = torch.randn(number, 4, generator=chance)
        # Far from zero, and growing: what is left out or counted twice is seen.
        labels = inputs.sum(dim=1, keepdim=True) + torch.linspace(1, 5, number)[:, None]
        return [{"inputs": one, "labels": other} for one, other in zip(inputs, labels, strict=True)]

    def micro_batches(self) -> Iterator[tuple[dict[str, Tensor], bool]]:
        """This rank's, each with whether it's the last of its step."""
        samples = self.samples()
        for number in range(STEPS * self.accumulation):
            start = (number * RANKS + self.rank) * MICRO_BATCH
            is_last = number % self.accumulation == self.accumulation - 1
            yield batch_of(samples[start : start + MICRO_BATCH]), is_last

    def saw(self, loss: Tensor) -> None:
        """A micro batch's loss, before anything divides it."""
        self.losses.append(loss.item())

    def stepped(self, model: nn.Module) -> None:
        """The optimizer has moved the model."""
        whole = [_whole(one) for one in model.parameters()]
        self.weights.append([value for one in whole for value in one.detach().flatten().tolist()])


def _whole(parameter: nn.Parameter) -> Tensor:
    """A parameter of which each rank may hold a part."""
    if hasattr(parameter, "full_tensor"):
        return parameter.full_tensor()
    if hasattr(parameter, "ds_id"):
        # `GatheredParameters` of DeepSpeed 0.16.9 is read before it is filled in 9 of 20 runs.
        from deepspeed.utils import safe_get_full_fp32_param

        return safe_get_full_fp32_param(parameter)
    return parameter


def batch_of(samples: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Samples as one batch."""
    return {name: torch.stack([one[name] for one in samples]) for name in samples[0]}


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """The plain one."""
    return torch.optim.SGD((one for one in model.parameters() if one.requires_grad), lr=RATE)


def reference(task: Task, model: nn.Module) -> None:
    """One process that sees each global batch at once."""
    optimizer = optimizer_of(model)
    size = task.accumulation * RANKS * MICRO_BATCH
    samples = task.samples()
    for start in range(0, len(samples), size):
        loss = model(**batch_of(samples[start : start + size]))
        task.saw(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        task.stepped(model)


REFERENCES: Mapping[str, Callable[[], nn.Module]] = {
    "reference": Net,
    "reference-of-towers": Towers,
    "reference-of-blocks": Blocks,
    "reference-of-frozen": partly_frozen,
}


def main(ways: Mapping[str, Callable[[Task], Any]]) -> None:
    """Runs the way that the command line names, with its accumulation."""
    torch.set_num_threads(1)
    task = Task(int(sys.argv[2]))
    if sys.argv[1] in REFERENCES:
        reference(task, REFERENCES[sys.argv[1]]())
    else:
        ways[sys.argv[1]](task)
    print("TOLD " + json.dumps({"losses": task.losses, "weights": task.weights}), flush=True)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
