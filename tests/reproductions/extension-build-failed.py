"""There is no C++ compiler on PATH, and DeepSpeed's CPU Adam isn't built yet."""

import os
import shutil
import sys
from pathlib import Path

import torch
from deepspeed.ops.adam import DeepSpeedCPUAdam

RANKS = 1
STACKS = ("current",)  # torch builds it, which is the same in both

if "--advised" not in sys.argv:
    programs = Path("programs").absolute()
    programs.mkdir()
    for name in ("ninja", "sh"):
        (programs / name).symlink_to(shutil.which(name))
    os.environ["PATH"] = str(programs)
    os.environ["TORCH_EXTENSIONS_DIR"] = os.getcwd()
model = torch.nn.Linear(4, 4)
optimizer = DeepSpeedCPUAdam(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
