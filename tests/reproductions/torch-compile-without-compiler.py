"""The model is compiled, and there is no C++ compiler on PATH."""

import os
import sys

import torch

RANKS = 1

os.environ["PATH"] = "/nowhere"
os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.getcwd()
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.Linear(4, 1))
if "--advised" not in sys.argv:
    model = torch.compile(model)
model(torch.ones(2, 4)).sum().backward()
