"""A layer normalizes its weight for evaluation by putting a new parameter in its place."""

import sys

import deepspeed
import torch


class NormedHead(torch.nn.Linear):
    """A linear layer whose weight has rows of length 1."""

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """The layer's output."""
        weight = torch.nn.functional.normalize(self.weight)
        if not self.training and "--advised" not in sys.argv:
            self.weight = torch.nn.Parameter(weight)
        return torch.nn.functional.linear(batch, weight, self.bias)


engine, _, _, _ = deepspeed.initialize(
    model=torch.nn.Sequential(torch.nn.Linear(4, 4), NormedHead(4, 1)),
    config={
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "Adam", "params": {"torch_adam": True}},
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    },
)
for _ in range(2):
    engine.train()
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
    engine.eval()
    with torch.no_grad():
        engine(torch.ones(2, 4))
