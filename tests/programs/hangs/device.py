"""Trains with DDP on accelerators, over the backend of their vendor or the one that is named.

MODE is `stuck` (rank 1 never ends a step) or `slow` (rank 1 keeps the others waiting).
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

mode, rank = sys.argv[1], int(os.environ["RANK"])
kind = torch.accelerator.current_accelerator().type
place = int(os.environ["LOCAL_RANK"])
if torch.accelerator.device_count() < int(os.environ["LOCAL_WORLD_SIZE"]):
    # NCCL refuses two ranks on one device of a host: here each has a host of its own name. From
    # 2.30 on it can also be told to bear them.
    os.environ |= {"NCCL_HOSTID": f"rank-{rank}", "NCCL_MULTI_RANK_GPU_ENABLE": "1"}
torch.accelerator.set_device_index(place % torch.accelerator.device_count())
dist.init_process_group(sys.argv[2] if sys.argv[2:] else dist.get_default_backend_for_device(kind))
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(16, 1).to(kind))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(120 if mode == "slow" else 8):
    if mode == "stuck" and rank == 1 and step == 4:
        time.sleep(3600)  # stuck: device
    if mode == "slow" and rank == 1:
        time.sleep(0.15)
    loss = model(torch.randn(4, 16, device=kind)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
index = torch.accelerator.current_device_index()
print(f"rank {rank} is done on {index}, {loss.item() > 0}", flush=True)
dist.destroy_process_group()
