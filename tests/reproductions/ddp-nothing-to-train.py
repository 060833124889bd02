"""A frozen reference model is wrapped like the model that is trained."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
policy = DistributedDataParallel(torch.nn.Linear(4, 1))
reference = torch.nn.Linear(4, 1).requires_grad_(False)
if "--advised" not in sys.argv:
    reference = DistributedDataParallel(reference)
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
for _ in range(2):
    batch = torch.ones(2, 4)
    (policy(batch) - reference(batch)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
