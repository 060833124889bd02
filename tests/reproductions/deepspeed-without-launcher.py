"""The script is started by `python` itself, so that nobody tells DeepSpeed its rank."""

import os
import sys

import deepspeed
import torch

RANKS = 1

if "--advised" not in sys.argv:
    for name in ("LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
settings = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "SGD", "params": {"lr": 1}}}
model, *_ = deepspeed.initialize(model=torch.nn.Linear(4, 4), config=settings)
model.backward(model(torch.ones(1, 4)).sum())
model.step()
