"""An average of the weights is begun with a copy of a model that FSDP2 has already sharded."""

import sys
from copy import deepcopy

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Linear(8, 1)
if "--advised" in sys.argv:
    average = deepcopy(model)
    fully_shard(model)
    fully_shard(average)
else:
    fully_shard(model)
    average = deepcopy(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for kept, new in zip(average.parameters(), model.parameters(), strict=True):
            kept.lerp_(new, 0.1)
dist.destroy_process_group()
