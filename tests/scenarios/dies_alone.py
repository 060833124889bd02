"""A loop in which one rank dies while the others wait for it in a collective operation.

The bug is in the data of rank 1, in its third batch.
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist


def batch(rank: int, number: int) -> torch.Tensor:
    if rank == 1 and number == 3:
        if sys.argv[1:] == ["--silently"]:
            os._exit(7)
        raise KeyError("sample 12 has no label")
    return torch.ones(8)


def main() -> None:
    dist.init_process_group("gloo")
    for number in range(10):
        dist.all_reduce(batch(dist.get_rank(), number))


if __name__ == "__main__":
    main()
