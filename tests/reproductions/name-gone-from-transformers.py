"""The optimizer is imported from transformers, which has none any more."""

import sys

import torch

RANKS = 1

if "--advised" in sys.argv:
    from torch.optim import AdamW
else:
    from transformers import AdamW

model = torch.nn.Linear(4, 4)
optimizer = AdamW(model.parameters())
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
