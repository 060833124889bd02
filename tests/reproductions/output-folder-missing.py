"""The checkpoint is saved into a folder that nobody has created."""

import sys
from pathlib import Path

import torch

RANKS = 1

folder = Path("runs/a")
if "--advised" in sys.argv:
    folder.mkdir(parents=True, exist_ok=True)
torch.save(torch.nn.Linear(4, 4).state_dict(), folder / "weights.pt")
