"""An external parameter is registered when ZeRO-3 has already learnt which module needs what."""

import sys

import deepspeed
import torch


class Block(torch.nn.Module):
    """A linear layer with a scale."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """The layer's output, scaled."""
        return self.linear(batch) * self.scale


model = torch.nn.Sequential(Block(), Block(), Block())
engine, _, _, _ = deepspeed.initialize(
    model=model,
    config={
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "Adam", "params": {"torch_adam": True}},
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    },
)
for number in range(6):
    if number == (0 if "--advised" in sys.argv else 4):
        deepspeed.zero.register_external_parameter(model[1], model[2].scale)
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
