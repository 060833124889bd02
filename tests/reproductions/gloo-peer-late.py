"""Rank 0 evaluates alone for longer than the others are willing to wait for it."""

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

patience = 30 if "--advised" in sys.argv else 2
dist.init_process_group("gloo", timeout=timedelta(seconds=patience))
if dist.get_rank() == 0:
    time.sleep(4)  # the evaluation
gradient = torch.ones(2)
dist.all_reduce(gradient)
dist.barrier()
dist.destroy_process_group()
