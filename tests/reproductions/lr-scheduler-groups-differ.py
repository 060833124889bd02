"""The scheduler is made for two groups of parameters, of which DeepSpeed drops the empty one."""

import sys

import deepspeed
import torch

model = torch.nn.Linear(4, 1, bias=False)
groups = [
    {"params": [one for one in model.parameters() if one.dim() > 1], "weight_decay": 0.1},
    {"params": [one for one in model.parameters() if one.dim() < 2], "weight_decay": 0.0},
]
if "--advised" in sys.argv:
    groups = [group for group in groups if group["params"]]
optimizer = torch.optim.AdamW(groups, lr=0.1)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
engine, _, _, _ = deepspeed.initialize(
    model=model,
    optimizer=optimizer,
    lr_scheduler=scheduler,
    config={
        "train_micro_batch_size_per_gpu": 2,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": 2},
    },
)
for _ in range(2):
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
