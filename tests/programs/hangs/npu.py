"""Trains with DDP on NPUs, over HCCL.

MODE is `stuck` (rank 1 never ends a step), `slow` (rank 1 keeps the others waiting) or `well`.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

mode, rank = sys.argv[1], int(os.environ["RANK"])
torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("hccl")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(16, 1).to("npu"))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(120 if mode == "slow" else 8):
    if mode == "stuck" and rank == 1 and step == 4:
        time.sleep(3600)  # stuck: npu
    if mode == "slow" and rank == 1:
        time.sleep(0.15)
    loss = model(torch.randn(4, 16, device="npu")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"rank {rank} is done on {torch.npu.current_device()}, {loss.item() > 0}", flush=True)
dist.destroy_process_group()
