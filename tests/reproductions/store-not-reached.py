"""The second node was given another port than the first."""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

patience = 30
if "--advised" not in sys.argv:
    patience = 7 if os.environ["RANK"] == "0" else 2
    if os.environ["RANK"] == "1":
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) - 1)

dist.init_process_group("gloo", timeout=timedelta(seconds=patience))
total = torch.ones(2)
dist.all_reduce(total)
dist.destroy_process_group()
