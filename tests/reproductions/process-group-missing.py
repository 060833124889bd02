"""A collective operation comes before the process group."""

import sys

import torch
import torch.distributed as dist

if "--advised" in sys.argv:
    dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
if not dist.is_initialized():
    dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
dist.destroy_process_group()
