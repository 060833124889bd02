"""Each rank sends its tokens to an expert of its own, and ZeRO-3 gathers what a rank runs."""

import sys

import deepspeed
import torch
from deepspeed.utils import set_z3_leaf_modules


class Experts(torch.nn.Module):
    """Two experts, of which a batch takes one."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """What the chosen expert makes of it."""
        return self.experts[torch.distributed.get_rank()](hidden)


deepspeed.init_distributed("gloo")
model = torch.nn.Sequential(torch.nn.Linear(4, 4), Experts(), torch.nn.Linear(4, 1))
if "--advised" in sys.argv:
    set_z3_leaf_modules(model, [Experts])
engine, _, _, _ = deepspeed.initialize(
    model=model,
    config={
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "Adam", "params": {"torch_adam": True}},
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    },
)
for _ in range(3):
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
