"""The script starts the process group, and a library's start-up function has done it before."""

import sys

import torch
import torch.distributed as dist

RANKS = 1


def set_up_library() -> None:
    """What a framework's entry point does on its own."""
    dist.init_process_group("gloo")


set_up_library()
if not dist.is_initialized() or "--advised" not in sys.argv:
    dist.init_process_group("gloo")
total = torch.ones(2)
dist.all_reduce(total)
dist.destroy_process_group()
