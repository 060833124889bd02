"""Layers in bf16 and an adapter in fp32 are trained together, in one unit of FSDP2."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Adapted(torch.nn.Module):
    """A projection in bf16, trained as a whole, with a low-rank adapter in fp32."""

    def __init__(self) -> None:
        super().__init__()
        self.base = torch.nn.Linear(8, 8, dtype=torch.bfloat16)
        self.down = torch.nn.Linear(8, 2, bias=False)
        self.up = torch.nn.Linear(2, 8, bias=False)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """The projection with what the adapter adds."""
        inner = self.down(batch.to(self.down.weight.dtype))
        return self.base(batch.to(self.base.weight.dtype)) + self.up(inner)


dist.init_process_group("gloo")
model = Adapted()
if "--advised" in sys.argv:
    model.to(torch.float32)
fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 8)).float().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
