"""Samples from the data loader's processes are kept, and each holds a file open."""

import resource
import sys

import torch
from torch.utils.data import DataLoader

RANKS = 1

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
if "--advised" in sys.argv:
    torch.multiprocessing.set_sharing_strategy("file_system")
model = torch.nn.Linear(4, 1)
loader = DataLoader(torch.ones(256, 4), batch_size=1, num_workers=1)
for batch in list(loader):
    model(batch).sum().backward()
