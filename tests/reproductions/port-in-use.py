"""Another program of this host listens on the port that the script's process group meets at."""

import os
import socket
import sys

import torch
import torch.distributed as dist

RANKS = 1

other_job = socket.create_server(("", int(os.environ["MASTER_PORT"])))
if "--advised" in sys.argv:
    with socket.create_server(("", 0)) as probe:
        os.environ["MASTER_PORT"] = str(probe.getsockname()[1])

dist.init_process_group("gloo")
total = torch.ones(2)
dist.all_reduce(total)
dist.destroy_process_group()
