"""A checkpoint of a model inside DDP is loaded into the model itself."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

RANKS = 1
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
whole = model.module if "--advised" in sys.argv else model
torch.save(whole.state_dict(), "checkpoint.pt")

model = torch.nn.Linear(4, 1)
model.load_state_dict(torch.load("checkpoint.pt"))
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
dist.destroy_process_group()
