"""FSDP's first version is asked to train where there is no accelerator."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel

dist.init_process_group("gloo")
device = torch.device("cpu") if "--advised" in sys.argv else None
model = FullyShardedDataParallel(torch.nn.Linear(8, 1), device_id=device)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
