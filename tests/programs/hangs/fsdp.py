"""Trains a small model that torch's FSDP divides.

MODE is `first` or `second`, FSDP's version: rank 0 alone makes a whole state dict while the others
wait for it at a barrier; `ahead`: as `first`, but nobody waits, and the ranks part later; `well`:
all ranks make it, and rank 0 writes it.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

mode = sys.argv[1]
WHOLE = StateDictOptions(full_state_dict=True)
dist.init_process_group("gloo")
rank = dist.get_rank()
model: torch.nn.Module = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 1))
if mode in ("first", "ahead"):
    model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
else:
    fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(6):
    model(torch.randn(2, 16)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 4:
        if mode == "well":
            state = get_model_state_dict(model, options=WHOLE)
            if rank == 0:
                torch.save(state, "model.pt")
        elif rank == 0 and mode == "second":
            torch.save(get_model_state_dict(model, options=WHOLE), "model.pt")  # stuck: second
        elif rank == 0:
            torch.save(model.state_dict(), "model.pt")  # stuck: first
        if mode != "ahead":
            dist.barrier()
print(f"rank {rank} is done", flush=True)
dist.destroy_process_group()
