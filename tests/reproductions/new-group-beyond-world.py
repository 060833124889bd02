"""The script is written for four ranks to a group, and two are started."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
ranks_per_group = dist.get_world_size() if "--advised" in sys.argv else 4
group = dist.new_group(list(range(ranks_per_group)))
total = torch.ones(2)
dist.all_reduce(total, group=group)
dist.destroy_process_group()
