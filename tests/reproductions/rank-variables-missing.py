"""A script of several ranks is started by plain python."""

import os
import sys

import torch
import torch.distributed as dist

RANKS = 1

given = dict(os.environ)
if "--advised" not in sys.argv:
    # What `python train.py` has in its environment.
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        del os.environ[name]
try:
    dist.init_process_group("gloo")
finally:
    os.environ.update(given)  # the reproduction's record is about this rank
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
dist.destroy_process_group()
