"""The frozen layer is quantized to 8 bits, and FSDP flattens it with the trained one."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel


class Quantized(torch.nn.Module):
    """A frozen projection whose weights are held in another type than they were computed in."""

    def __init__(self, storage: torch.dtype) -> None:
        super().__init__()
        weight = torch.randint(-127, 128, (8, 8), dtype=torch.int8)
        self.weight = torch.nn.Parameter(weight.view(-1).view(storage), requires_grad=False)
        self.head = torch.nn.Linear(8, 1)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """The head's values of the projection."""
        weight = self.weight.view(torch.int8).view(8, 8).to(batch.dtype) / 127
        return self.head(batch @ weight)


RANKS = 1
dist.init_process_group("gloo")
storage = torch.float32 if "--advised" in sys.argv else torch.int8
model = FullyShardedDataParallel(
    Quantized(storage), device_id=torch.device("cpu"), use_orig_params=True
)
optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=0.1)
for _ in range(2):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
