"""A running total of losses keeps last step's graph, and backward goes through it again."""

import sys

import torch

RANKS = 1
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = torch.zeros(())
for _ in range(3):
    loss = model(torch.ones(2, 4)).sum()
    if "--advised" in sys.argv:
        loss.backward()
        total = total + loss.detach()
    else:
        total = total + loss
        total.backward()
    optimizer.step()
    optimizer.zero_grad()
