"""DDP is told a GPU's number, but the model was never moved from the CPU."""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
on_gpu = "--advised" not in sys.argv
model = DistributedDataParallel(
    model, device_ids=[int(os.environ["LOCAL_RANK"])] if on_gpu else None
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
