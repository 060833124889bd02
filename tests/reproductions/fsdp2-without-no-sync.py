"""Gradients are accumulated by `no_sync`, which models that FSDP2 has sharded don't have."""

import sys
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
advised = "--advised" in sys.argv
for batch in range(4):
    is_last = batch % 2 == 1
    if advised:
        model.set_requires_gradient_sync(is_last)
    with nullcontext() if is_last or advised else model.no_sync():
        model(torch.ones(2, 8)).sum().backward()
    if is_last:
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
