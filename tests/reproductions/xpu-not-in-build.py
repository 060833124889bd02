"""The script is for an Intel GPU, and torch is a build without them."""

import sys

import torch
from accelerate import Accelerator

RANKS = 1

device = Accelerator().device if "--advised" in sys.argv else "xpu"
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 4, device=device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
