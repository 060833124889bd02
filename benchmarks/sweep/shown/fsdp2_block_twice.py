"""FSDP 2 leaves out a gradient: torchrun --nproc-per-node 2 fsdp2_block_twice.py."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint


class Twice(torch.nn.Sequential):
    """A model whose first block runs twice, each time under a checkpoint."""

    def forward(self, hidden, reentrant):
        """The sum of what comes out."""
        for _ in range(2):
            hidden = checkpoint(self[0], hidden, use_reentrant=reentrant)
        return self[1](hidden).sum()


mesh = init_device_mesh("cpu", (2,))
for reentrant in (False, True):
    torch.manual_seed(0)
    model = Twice(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model[0].parameters(), lr=1.0)
    bias = optimizer.param_groups[0]["params"][1]
    before = bias.full_tensor()
    model(torch.ones(1, 4, requires_grad=True), reentrant).backward()
    optimizer.step()
    print(f"use_reentrant={reentrant}: the bias moves by {(bias.full_tensor() - before).tolist()}")
