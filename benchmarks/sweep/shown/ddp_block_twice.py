"""DDP averages too early: torchrun --nproc-per-node 2 ddp_block_twice.py. The ranks must agree."""

import torch
from torch import distributed
from torch.utils.checkpoint import checkpoint


class Twice(torch.nn.Sequential):
    """A model whose block runs twice, each time under a checkpoint."""

    def forward(self, hidden, reentrant):
        """The sum of what comes out."""
        for _ in range(2):
            hidden = checkpoint(self[0], hidden, use_reentrant=reentrant)
        return hidden.sum()


distributed.init_process_group("gloo")
for reentrant in (False, True):
    torch.manual_seed(0)
    model = Twice(torch.nn.Linear(4, 4))
    inputs = torch.full((1, 4), 1.0 + distributed.get_rank(), requires_grad=True)
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    wrapped(inputs, reentrant).backward()
    every = [torch.empty(4) for _ in range(2)]
    distributed.all_gather(every, model[0].weight.grad[0])
    print(f"use_reentrant={reentrant}: gradients {every[0].tolist()} and {every[1].tolist()}")
