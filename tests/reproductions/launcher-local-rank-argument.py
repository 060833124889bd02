"""The launcher passes --local_rank, which the script's parser doesn't know."""

import argparse
import os
import sys

import torch
import torch.distributed as dist

is_advised = "--advised" in sys.argv
# What `deepspeed train.py` does to the command line of every rank.
sys.argv[1:] = [f"--local_rank={os.environ['LOCAL_RANK']}"]

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
if is_advised:
    parser.add_argument("--local_rank", "--local-rank", type=int, default=-1)
options = parser.parse_args()

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
dist.destroy_process_group()
