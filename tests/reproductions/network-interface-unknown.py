"""The environment names a network interface that this host doesn't have."""

import os
import sys

import torch
import torch.distributed as dist

if "--advised" not in sys.argv:
    os.environ["GLOO_SOCKET_IFNAME"] = "ib0"

dist.init_process_group("gloo")
total = torch.ones(2)
dist.all_reduce(total)
dist.destroy_process_group()
