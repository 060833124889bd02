"""Features in fp32 are given to a model that was loaded in bf16, without autocast."""

import sys

import torch

RANKS = 1
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)).to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for _ in range(2):
    batch = torch.randn(2, 8)
    if "--advised" in sys.argv:
        batch = batch.to(next(model.parameters()).dtype)
    model(batch).float().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
