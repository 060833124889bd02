"""DeepSpeed's fused optimizer is built for CUDA where no GPU is visible."""

import os
import sys

if "--advised" not in sys.argv:
    os.environ["DS_ACCELERATOR"] = "cuda"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch
from deepspeed.ops.adam import FusedAdam

RANKS = 1
FRESH = True

model = torch.nn.Linear(4, 4)
kind = torch.optim.AdamW if "--advised" in sys.argv else FusedAdam
optimizer = kind(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
