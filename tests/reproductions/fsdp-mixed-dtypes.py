"""An adapter in fp32 is added to a model in bf16, and FSDP flattens both into one parameter."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel


class Adapted(torch.nn.Module):
    """A projection in bf16 with a low-rank adapter, as adapters are by default, in fp32."""

    def __init__(self) -> None:
        super().__init__()
        self.base = torch.nn.Linear(8, 8, dtype=torch.bfloat16)
        self.down = torch.nn.Linear(8, 2, bias=False)
        self.up = torch.nn.Linear(2, 8, bias=False)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """The projection with what the adapter adds."""
        inner = self.down(batch.to(self.down.weight.dtype))
        return self.base(batch) + self.up(inner).to(batch.dtype)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Adapted()
if "--advised" in sys.argv:
    model = model.to(torch.bfloat16)
model = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 8, dtype=torch.bfloat16)).float().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
