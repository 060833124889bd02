"""A model whose own weights are fp16 is trained with a gradient scaler."""

import sys

import torch

RANKS = 1
torch.manual_seed(0)
model = torch.nn.Linear(8, 1).to(torch.float32 if "--advised" in sys.argv else torch.float16)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
for _ in range(2):
    with torch.autocast("cpu", torch.float16):
        loss = model(torch.ones(2, 8, dtype=model.weight.dtype)).float().sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
