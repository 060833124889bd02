"""The size of the output layer comes from the labels that each rank has seen, and they differ."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
labels_seen = 3 + dist.get_rank()
if "--advised" in sys.argv:
    most = torch.tensor(labels_seen)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    labels_seen = int(most)
model = DistributedDataParallel(torch.nn.Linear(4, labels_seen))
model(torch.ones(2, 4)).sum().backward()
dist.barrier()
dist.destroy_process_group()
