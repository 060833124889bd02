"""A model with a learned temperature, a number without dimensions, is sharded."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


class Model(torch.nn.Module):
    """Similarities to learned classes at a learned temperature."""

    def __init__(self, temperature: torch.Tensor) -> None:
        super().__init__()
        self.classes = torch.nn.Linear(8, 4, bias=False)
        self.logit_scale = torch.nn.Parameter(temperature)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """The scaled similarities."""
        return self.logit_scale.exp() * self.classes(batch)


dist.init_process_group("gloo")
model = Model(torch.tensor([1.0]) if "--advised" in sys.argv else torch.tensor(1.0))
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
