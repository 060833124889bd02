"""A checkpoint of FSDP in parts, one for each rank, is to be loaded as one whole file."""

import sys

import torch
import torch.distributed as dist
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.utils import load_fsdp_model, save_fsdp_model
from torch.distributed.fsdp import fully_shard

accelerator = Accelerator(cpu=True)


def made() -> torch.nn.Module:
    """A model that is sharded."""
    model = torch.nn.Linear(8, 1)
    fully_shard(model)
    return model


def plugin(kind: str) -> FullyShardedDataParallelPlugin:
    """FSDP's settings with a kind of state dict."""
    return FullyShardedDataParallelPlugin(
        fsdp_version=2, state_dict_type=kind, cpu_ram_efficient_loading=False
    )


save_fsdp_model(plugin("SHARDED_STATE_DICT"), accelerator, made(), "checkpoint")
kind = "SHARDED_STATE_DICT" if "--advised" in sys.argv else "FULL_STATE_DICT"
model = made()
load_fsdp_model(plugin(kind), accelerator, model, "checkpoint")
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
model(torch.ones(2, 8)).sum().backward()
optimizer.step()
dist.destroy_process_group()
