"""The model is moved to CUDA by a build of torch that knows the CPU alone."""

import sys

import torch

RANKS = 1

device = "cpu" if "--advised" in sys.argv else "cuda"
model = torch.nn.Linear(4, 4).to(device)
model(torch.ones(2, 4, device=device)).sum().backward()
