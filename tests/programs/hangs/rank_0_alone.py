"""Rank 0 prepares the data, evaluates and saves by itself while the other ranks wait for it.

    rank_0_alone.py MODE FOLDER

MODE is `well`: it tokenises and evaluates, each for some seconds; `saves`: it writes a checkpoint
to FOLDER, whose disk may be slow; `locked`: it waits for the lock of the cache, which a process
that has gone wrong holds.
"""

from __future__ import annotations

import fcntl
import hashlib
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SECONDS = 8.0
mode, folder = sys.argv[1], Path(sys.argv[2])


def work(seconds: float) -> None:
    """Computes for some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        hashlib.pbkdf2_hmac("sha256", b"text", b"salt", 10_000)


def prepare() -> None:
    """Tokenises, where nobody has."""
    with (folder / "cache.lock").open("w") as file:
        if mode == "locked":
            other = (folder / "cache.lock").open("w")
            fcntl.flock(other, fcntl.LOCK_EX)
        fcntl.flock(file, fcntl.LOCK_EX)  # stuck: locked
        work(SECONDS if mode == "well" else 0)


dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 0:
    prepare()
dist.barrier()  # waits: barrier
model = DistributedDataParallel(torch.nn.Linear(1024, 1024))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for _ in range(3):
    x = torch.randn(2, 1024)
    model(x).square().mean().backward()  # waits: backward
    optimizer.step()
if rank == 0:
    model.eval()
    with torch.no_grad():
        work(SECONDS if mode == "well" else 0)
    torch.save(model.module.state_dict(), folder / "checkpoint.pt")
dist.barrier()
dist.destroy_process_group()
