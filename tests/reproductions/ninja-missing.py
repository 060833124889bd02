"""The virtual environment isn't on PATH, so that the program `ninja` isn't found."""

import os
import sys

import torch
from deepspeed.ops.adam import DeepSpeedCPUAdam

RANKS = 1
STACKS = ("current",)  # torch builds it, which is the same in both

if "--advised" not in sys.argv:
    os.environ["PATH"] = "/nowhere"
    os.environ["TORCH_EXTENSIONS_DIR"] = os.getcwd()
model = torch.nn.Linear(4, 4)
optimizer = DeepSpeedCPUAdam(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
