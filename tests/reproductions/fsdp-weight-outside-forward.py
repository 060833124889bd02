"""The head of a model is called by itself after a step, when FSDP has released its weights."""

import sys
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel

dist.init_process_group("gloo")
model = FullyShardedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)), device_id=torch.device("cpu")
)
whole = FullyShardedDataParallel.summon_full_params(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
with whole if "--advised" in sys.argv else nullcontext(), torch.no_grad():
    print("the head's values:", model.module[1](torch.ones(2, 8)))
dist.destroy_process_group()
