"""The first layer of a module is frozen, and FSDP without original parameters flattens it all."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
model[0].requires_grad_(False)
model = FullyShardedDataParallel(
    model, device_id=torch.device("cpu"), use_orig_params="--advised" in sys.argv
)
trained = [one for one in model.parameters() if one.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=0.1)
for _ in range(2):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
