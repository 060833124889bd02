"""A first step that takes long, and then a loop that waits for its data in each step.

    first_step.py SECONDS [compile]

Before the first step a layer computes for so many seconds; with `compile` the model is compiled.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

seconds, is_compiled = float(sys.argv[1]), sys.argv[2:] == ["compile"]


class Block(torch.nn.Module):
    """A layer that prepares itself when it is first used."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(32, 32)
        self.is_ready = is_compiled

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Its output."""
        if not self.is_ready:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                torch.linalg.svd(torch.randn(64, 64))
            self.is_ready = True
        return torch.nn.functional.gelu(self.linear(x)).softmax(-1)


dist.init_process_group("gloo")
block = torch.compile(Block()) if is_compiled else Block()
model = DistributedDataParallel(block)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(9):
    model(torch.randn(8, 32)).square().mean().backward()
    optimizer.step()
    if step > 4:
        time.sleep(1)  # the queue of the data is empty
dist.barrier()
dist.destroy_process_group()
