"""The process group knows the accelerator's tensors alone, and a CPU tensor is reduced over it."""

import sys

import torch
import torch.distributed as dist

RANKS = 1

backend = "cpu:gloo,cuda:gloo" if "--advised" in sys.argv else "cuda:gloo"
dist.init_process_group(backend)
tokens_seen = torch.tensor([128])
dist.all_reduce(tokens_seen)
dist.destroy_process_group()
