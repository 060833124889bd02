"""Fewer ranks are started than WORLD_SIZE says."""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

RANKS = 1

if "--advised" not in sys.argv:
    os.environ["WORLD_SIZE"] = "2"

dist.init_process_group("gloo", timeout=timedelta(seconds=2))
total = torch.ones(2)
dist.all_reduce(total)
dist.destroy_process_group()
