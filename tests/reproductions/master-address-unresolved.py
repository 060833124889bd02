"""MASTER_ADDR is a name that this host can't look up."""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

RANKS = 1

if "--advised" not in sys.argv:
    os.environ["MASTER_ADDR"] = "node-0.invalid"

dist.init_process_group("gloo", timeout=timedelta(seconds=3))
total = torch.ones(2)
dist.all_reduce(total)
dist.destroy_process_group()
