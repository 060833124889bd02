"""A model was cloned without git-lfs: where its weights should be, there is a pointer to them."""

import sys
from pathlib import Path

import torch

RANKS = 1
model = torch.nn.Linear(4, 1)
weights = Path("pytorch_model.bin")
torch.save(model.state_dict(), weights)
if "--advised" not in sys.argv:
    weights.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:12ab\nsize 1234\n")

model.load_state_dict(torch.load(weights))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
