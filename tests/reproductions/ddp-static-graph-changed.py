"""DDP is promised a graph that never changes, but only some batches have images for the tower."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Model(torch.nn.Module):
    """A tower for images, and a body."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = torch.nn.Linear(4, 4)
        self.body = torch.nn.Linear(4, 1)

    def forward(self, batch: torch.Tensor, has_images: bool) -> torch.Tensor:
        """The prediction; text alone passes the tower by."""
        return self.body(self.tower(batch) if has_images else batch)


dist.init_process_group("gloo")
advised = "--advised" in sys.argv
model = DistributedDataParallel(Model(), static_graph=not advised, find_unused_parameters=advised)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    model(torch.ones(2, 4), has_images=step % 2 == 0).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
