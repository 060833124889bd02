"""NCCL is asked for with a torch that was built without it."""

import sys

import torch.distributed as dist

RANKS = 1

dist.init_process_group("gloo" if "--advised" in sys.argv else "nccl")
dist.destroy_process_group()
