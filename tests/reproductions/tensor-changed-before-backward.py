"""The optimizer steps between two backward passes that need the weights as they were before."""

import sys

import torch

RANKS = 1
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    scores = model(torch.ones(2, 4))
    scores[0].sum().backward(retain_graph=True)
    if "--advised" not in sys.argv:
        optimizer.step()
    scores[1].sum().backward()
    optimizer.step()
    optimizer.zero_grad()
