"""Scaled weights in 8-bit floats are summed over the ranks."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
weights = torch.ones(4).to(torch.float8_e4m3fn)
if "--advised" in sys.argv:
    weights = weights.float()
dist.all_reduce(weights)
dist.barrier()
dist.destroy_process_group()
