"""FSDP 2 adds up gradients over gloo: torchrun --nproc-per-node 2 fsdp2_over_gloo.py."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

mesh = init_device_mesh("cpu", (2,))
for forced in (False, True):
    model = torch.nn.Linear(4, 4, bias=False)
    fully_shard(model, mesh=mesh)
    if forced and hasattr(model, "set_force_sum_reduction_for_comms"):
        model.set_force_sum_reduction_for_comms(True)
    model(torch.ones(1, 4)).sum().backward()
    print(f"forced={forced}: {model.weight.grad.full_tensor()[0].tolist()} instead of 1.0")
