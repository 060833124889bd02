"""The models of the sweep, and their data: all numbers are positive.

So no sum in a pass, forward or backward, has terms of different signs, and the error of a gradient
is bounded for each of its elements (`tolerance`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WIDTH = 16
RANK = 2
"""The rank of the adapters."""
SAMPLES = 2
"""Samples of a micro batch on one rank."""
STEPS = 3
WORLD = 2
"""Ranks."""


class Block(nn.Module):
    """A layer; with an adapter its own weights are frozen."""

    def __init__(self, *, adapted: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(_positive(WIDTH, WIDTH), requires_grad=not adapted)
        self.bias = nn.Parameter(_positive(WIDTH), requires_grad=not adapted)
        self.down = nn.Parameter(_positive(RANK, WIDTH)) if adapted else None
        self.up = nn.Parameter(_positive(WIDTH, RANK)) if adapted else None

    def forward(self, inputs: Tensor) -> Tensor:
        """The layer's output."""
        outputs = functional.linear(inputs, self.weight, self.bias)
        if self.down is not None and self.up is not None:
            outputs = outputs + functional.linear(functional.linear(inputs, self.down), self.up)
        return functional.relu(outputs)


class Model(nn.Module):
    """Two blocks and a head."""

    def __init__(self, kind: str, checkpointing: str) -> None:
        super().__init__()
        self.kind = kind
        self.checkpointing = checkpointing
        self.first = Block(adapted="lora" in kind)
        self.second = Block(adapted=kind == "lora")
        self.head = None if kind == "tied" else nn.Parameter(_positive(4, WIDTH))
        if kind == "frozen":
            self.first.requires_grad_(requires_grad=False)
        if kind == "lora_twice":
            self.second.requires_grad_(requires_grad=False)
        if "lora" in kind and self.head is not None:
            self.head.requires_grad_(requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """The loss: the mean over the samples of a half of the outputs' square."""
        # As in the Trainer: a reentrant block trains nothing unless an input requires a gradient.
        hidden = inputs.requires_grad_(self.checkpointing == "reentrant")
        hidden = self._through(self.first, hidden)
        if "twice" in self.kind:
            hidden = self._through(self.first, hidden)
        hidden = self._through(self.second, hidden)
        head = self.first.weight if self.head is None else self.head
        outputs = functional.linear(hidden, head)
        return outputs.square().mean() / 2

    def _through(self, block: Block, hidden: Tensor) -> Tensor:
        if self.checkpointing == "off":
            return block(hidden)
        outputs = checkpoint(block, hidden, use_reentrant=self.checkpointing == "reentrant")
        assert isinstance(outputs, Tensor)
        return outputs


def model_of(kind: str, checkpointing: str) -> Model:
    """The model, with the same weights on every rank and in the truth."""
    torch.manual_seed(20)
    return Model(kind, checkpointing)


def batches_of(accumulation: int) -> Tensor:
    """All samples, by step, micro batch and rank.

    The second rank has sixteen times the gradient of the first, so that a rank's gradient is far
    from the mean. In each step another micro batch has most of the gradient: first the last one,
    which engines reduce, then the first one, then one between them. So none of them can be lost, or
    be counted twice, within the tolerance.
    """
    made = torch.Generator().manual_seed(45)
    shape = (STEPS, accumulation, WORLD, SAMPLES, WIDTH)
    samples = torch.rand(shape, generator=made) / 2 + 0.75
    samples[:, :, 1] *= 4
    for step in range(STEPS):
        samples[step, (step - 1) % accumulation] *= 2
    return _short(samples)


def _positive(*shape: int) -> Tensor:
    """Numbers that keep the activations' magnitude."""
    return _short((torch.rand(*shape) + 0.5) / shape[-1])


def _short(numbers: Tensor) -> Tensor:
    """The nearest numbers in all three types, so that no cast rounds."""
    return numbers.bfloat16().float()
