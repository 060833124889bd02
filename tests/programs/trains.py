"""Adds up the ranks step by step, and says so; fails, waits or goes on as its arguments say.

    trains.py FOLDER STEPS [RANK:STEP:HOW]

HOW is `raise`, or `wait` until a file FOLDER/go-on is there. Each step leaves FOLDER/step-RANK.
"""

import os
import sys
import time

import torch
import torch.distributed

folder, steps = sys.argv[1], int(sys.argv[2])
who, when, how = (sys.argv[3] if len(sys.argv) > 3 else "-1:0:").split(":")
torch.distributed.init_process_group("gloo")
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
for step in range(steps):
    total = torch.tensor([rank + 1.0])
    torch.distributed.all_reduce(total)
    with open(f"{folder}/step-{rank}", "w") as file:
        file.write(str(step))
    if rank == int(who) and step == int(when):
        if how == "raise":
            raise ValueError(f"the bug of rank {rank}")
        while not os.path.exists(f"{folder}/go-on"):
            time.sleep(0.02)
print(f"rank {rank} of {world} on {os.uname().nodename}: {total.item()}", flush=True)
torch.distributed.destroy_process_group()
