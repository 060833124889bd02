"""A collective that one rank never enters, and what NCCL's watchdog does after its timeout.

Every rank writes its recorder's dump where NCCL's process group would; then the process of a rank
that waits is ended with the watchdog's words.
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

WORDS = (
    "[rank{rank}]:[E1122 10:20:30.405060 ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=12480, "
    "NumelOut=12480, Timeout(ms)=600000) ran for 600047 milliseconds before timing out.\n"
)
PREFIX = os.environ["TORCH_FR_DUMP_TEMP_FILE"]


def dump() -> None:
    """Writes what the recorder holds, as the process group of NCCL does."""
    path = PREFIX + os.environ["RANK"]
    with open(f"{path}.new", "wb") as file:
        file.write(c10d._dump_fr_trace())
    os.replace(f"{path}.new", path)


def main() -> None:
    """Three collectives of all, and a fourth without rank 1."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for _ in range(3):
        dist.all_reduce(torch.ones(8))  # last seen
    while not all(entry["retired"] for entry in json.loads(c10d._dump_fr_trace_json())["entries"]):
        time.sleep(0.01)  # gloo marks a collective as done only after it has returned
    if rank == 1:
        dump()
        time.sleep(3600)
    dist.all_reduce(torch.ones(12480), async_op=True)
    dump()
    while not all(os.path.exists(f"{PREFIX}{other}") for other in range(dist.get_world_size())):
        time.sleep(0.05)  # it waits for the others' dumps
    sys.stderr.write(WORDS.format(rank=rank))
    sys.stderr.flush()
    os.abort()


main()
