"""A filter on length leaves no sample."""

import sys

import torch

RANKS = 1

limit = 64 if "--advised" in sys.argv else 8
samples = [torch.ones(16) for _ in range(4)]
kept = [one for one in samples if len(one) <= limit]
loader = torch.utils.data.DataLoader(kept, batch_size=2, shuffle=True)
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in loader:
    model(batch).sum().backward()
    optimizer.step()
