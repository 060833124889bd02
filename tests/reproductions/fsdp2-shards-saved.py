"""Rank 0 writes the state dict of a model that FSDP2 has divided, as it would a whole model's."""

import sys

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(8, 4)
before = model.weight.detach().clone()
fully_shard(model)
if "--advised" in sys.argv:
    whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=whole)
else:
    state = model.state_dict()
if dist.get_rank() == 0:
    save_file(state, "model.safetensors")
    if not torch.equal(load_file("model.safetensors")["weight"], before):
        sys.exit("another weight was saved")
dist.destroy_process_group()
