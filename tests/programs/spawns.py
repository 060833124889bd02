"""Starts its ranks itself; they meet at an address of the environment's or of their own."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def train(rank: int, world: int, port: str) -> None:
    if port == "nowhere":
        return
    if port:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    dist.init_process_group("gloo", rank=rank, world_size=world)
    number = torch.tensor([rank + 1.0])
    dist.all_reduce(number)
    sys.stdout.write(f"sum {number.item()}\n")
    sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, args=(2, sys.argv[1]), nprocs=2)
