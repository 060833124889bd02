"""A condition that holds on one rank alone makes it skip a collective that the others run."""

import os
import sys

import torch
import torch.distributed as dist

os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
dist.set_debug_level_from_env()

dist.init_process_group("gloo")
loss = torch.tensor(float(dist.get_rank()))
if loss > 0 or "--advised" in sys.argv:
    dist.all_reduce(loss)
weights = torch.ones(4)
dist.broadcast(weights, src=0)
dist.destroy_process_group()
