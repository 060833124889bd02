"""The device is written into the script, and nothing has imported what drives it."""

import sys

import torch
from accelerate import Accelerator

RANKS = 1

device = Accelerator().device if "--advised" in sys.argv else "npu"
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 4, device=device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
