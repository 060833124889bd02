"""autocast keeps a cast that has no gradient: python autocast_cache.py. All gradients must be 2."""

import torch
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

weight = torch.nn.Parameter(torch.eye(2))
inputs = torch.ones(1, 2, requires_grad=True)
for reentrant, cache in ((False, True), (True, False), (True, True)):
    weight.grad = None
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=cache):
        hidden = checkpoint(linear, inputs, weight, use_reentrant=reentrant)
        loss = linear(hidden, weight).sum()  # the same weight, outside of the checkpoint
    loss.backward()
    print(f"use_reentrant={reentrant}, cache_enabled={cache}: {weight.grad[0].tolist()}")
