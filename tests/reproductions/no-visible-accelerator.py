"""The script takes the accelerator of its rank on a machine that has none."""

import os
import sys

import torch

RANKS = 1

if "--advised" not in sys.argv:
    torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
model = torch.nn.Linear(4, 4)
model(torch.ones(2, 4)).sum().backward()
