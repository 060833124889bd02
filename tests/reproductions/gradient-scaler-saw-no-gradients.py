"""The optimizer was made for another copy of the model than the one that is trained."""

import copy
import sys

import torch

RANKS = 1
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
if "--advised" not in sys.argv:
    model = copy.deepcopy(model)
scaler = torch.amp.GradScaler("cpu")
for _ in range(2):
    with torch.autocast("cpu", torch.float16):
        loss = model(torch.ones(2, 8)).float().sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
