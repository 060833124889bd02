"""DDP is promised a graph that never changes, and the first micro batch is accumulated locally."""

import sys
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STACKS = ("current",)
ACCUMULATION = 2

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1), static_graph="--advised" not in sys.argv)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    for micro_batch in range(ACCUMULATION):
        is_last = micro_batch == ACCUMULATION - 1
        with nullcontext() if is_last else model.no_sync():
            (model(torch.ones(2, 4)).mean() / ACCUMULATION).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
