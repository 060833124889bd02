"""A run was killed while it wrote its last checkpoint, and that one is loaded."""

import sys
from pathlib import Path

import torch

RANKS = 1
model = torch.nn.Linear(64, 64)
for step in (1, 2):
    torch.save(model.state_dict(), f"checkpoint-{step}.pt")
last = Path("checkpoint-2.pt")
last.write_bytes(last.read_bytes()[:4096])

path = Path("checkpoint-1.pt") if "--advised" in sys.argv else last
model.load_state_dict(torch.load(path))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 64)).sum().backward()
optimizer.step()
