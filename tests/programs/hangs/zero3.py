"""Trains a small model with DeepSpeed's stage 3.

MODE is `modules` (each rank uses the expert that its data ask for), `save` (rank 0 alone saves a
checkpoint) or `well`.
"""

from __future__ import annotations

import sys

import deepspeed
import torch
import torch.distributed as dist

mode = sys.argv[1]
CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "optimizer": {"type": "SGD", "params": {"lr": 1e-3}},
    "zero_allow_untested_optimizer": True,
}


class Experts(torch.nn.Module):
    """A mixture in which each sample goes to an expert."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = torch.nn.Linear(16, 16)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(2))
        self.outside = torch.nn.Linear(16, 1)

    def forward(self, x: torch.Tensor, expert: int) -> torch.Tensor:
        """The output of one of the experts."""
        x = self.inside(x)
        if expert < 2:
            x = self.experts[expert](x)  # stuck: modules
        return self.outside(x)  # waits: modules


deepspeed.init_distributed("gloo")
torch.manual_seed(0)
engine, *_ = deepspeed.initialize(model=Experts(), config=CONFIG)
rank = dist.get_rank()
for step in range(6):
    is_text_only = mode == "modules" and rank == 1 and step == 4
    loss = engine(torch.randn(2, 16), 2 if is_text_only else 0).square().mean()
    engine.backward(loss)
    engine.step()
    if mode == "save" and step == 4 and rank == 0:
        engine.save_checkpoint("checkpoints")  # stuck: save
    if mode == "well" and step == 4:
        engine.save_checkpoint("checkpoints")
print(f"rank {rank} is done", flush=True)
