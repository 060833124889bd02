"""A method of the model is called on DDP, which wraps it."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Model(torch.nn.Module):
    """A model with a loss of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(4, 1)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """The prediction."""
        return self.body(batch)

    def loss(self, prediction: torch.Tensor) -> torch.Tensor:
        """What is minimized."""
        return prediction.square().mean()


dist.init_process_group("gloo")
model = DistributedDataParallel(Model())
owner = model.module if "--advised" in sys.argv else model
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    owner.loss(model(torch.ones(2, 4))).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
