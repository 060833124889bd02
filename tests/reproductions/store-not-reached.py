"""The second node was given another port than the first."""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

if os.environ["RANK"] == "1" and "--advised" not in sys.argv:
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) - 1)

patience = 7 if os.environ["RANK"] == "0" else 2
dist.init_process_group("gloo", timeout=timedelta(seconds=patience))
total = torch.ones(2)
dist.all_reduce(total)
dist.destroy_process_group()
