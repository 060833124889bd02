"""A weight in bf16 is decomposed, for which torch has no kernel in 16 bits."""

import sys

import torch

RANKS = 1
model = torch.nn.Linear(4, 4).to(torch.bfloat16)
weight = model.weight.float() if "--advised" in sys.argv else model.weight
singular = torch.linalg.svdvals(weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
singular.sum().backward()
optimizer.step()
