"""A module gathers its own weight in its forward pass, and so gives it back while it is in use."""

import contextlib
import sys

import deepspeed
import torch


class Scaled(torch.nn.Linear):
    """A linear layer that looks at its weight."""

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """The layer's output over its weight's norm."""
        gathered = deepspeed.zero.GatheredParameters([self.weight])
        with contextlib.nullcontext() if "--advised" in sys.argv else gathered:
            norm = self.weight.detach().norm()
        return super().forward(batch) / norm


engine, _, _, _ = deepspeed.initialize(
    model=Scaled(4, 1),
    config={
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "Adam", "params": {"torch_adam": True}},
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    },
)
for _ in range(2):
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
