"""FSDP2 is given a list of layers in the place of the layers."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


class Model(torch.nn.Module):
    """Two layers, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)])

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """The last layer's values."""
        for layer in self.layers:
            batch = layer(batch)
        return batch


dist.init_process_group("gloo")
model = Model()
for module in model.layers if "--advised" in sys.argv else [model.layers]:
    fully_shard(module)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
