"""Only one rank creates a further process group."""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist

is_advised = "--advised" in sys.argv
dist.init_process_group("gloo")
if dist.get_rank() == 0 or is_advised:
    group = dist.new_group([0, 1], timeout=timedelta(seconds=30 if is_advised else 2))
total = torch.ones(2)
dist.all_reduce(total)
dist.destroy_process_group()
