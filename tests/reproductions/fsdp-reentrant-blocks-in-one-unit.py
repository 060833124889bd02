"""FSDP wraps the model as a whole, and two of its blocks are checkpointed by re-entering."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils.checkpoint import checkpoint


class Model(torch.nn.Module):
    """Two blocks between two other layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()) for _ in range(2)
        )
        self.head = torch.nn.Linear(8, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """One number for each."""
        hidden = self.first(inputs)
        for block in self.blocks:
            hidden = checkpoint(block, hidden, use_reentrant="--advised" not in sys.argv)
        return self.head(hidden)


dist.init_process_group("gloo")
model = FullyShardedDataParallel(Model(), device_id=torch.device("cpu"))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
