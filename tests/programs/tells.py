"""Tells what it has got, adds up the ranks, and goes on until it is told to end."""

import json
import os
import sys
import time

import torch
import torch.distributed

torch.distributed.init_process_group("gloo")
total = torch.tensor([float(os.environ["RANK"]) + 1])
torch.distributed.all_reduce(total)
things = {
    "host": os.uname().nodename,
    "sum": total.item(),
    "arguments": sys.argv[1:],
    "folder": os.getcwd(),
    "environment": dict(os.environ),
}
rank = os.environ["RANK"]
with open(f"told-{rank}.part", "w") as file:
    json.dump(things, file)
os.rename(f"told-{rank}.part", f"told-{rank}")
print(f"rank {rank} has told", flush=True)
while not os.path.exists("finish"):
    time.sleep(0.02)
