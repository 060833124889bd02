"""A data loader's processes are spawned, and the collator is defined inside a function."""

import sys

import torch
from torch.utils.data import DataLoader

RANKS = 1


def stacked(rows):
    """The batch."""
    return torch.stack(rows)


def loader():
    """The loader with its collator."""

    def collate(rows):
        return torch.stack(rows)

    chosen = stacked if "--advised" in sys.argv else collate
    workers = 0 if "--advised" in sys.argv else 1
    rows = [torch.ones(4) for _ in range(4)]
    spawned = {"num_workers": workers, "multiprocessing_context": "spawn"} if workers else {}
    return DataLoader(rows, batch_size=2, collate_fn=chosen, **spawned)


for batch in loader():
    torch.nn.Linear(4, 4)(batch).sum().backward()
