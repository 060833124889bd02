"""One layer is in bfloat16, the other in float32, and DeepSpeed is told of no precision."""

import sys

import deepspeed
import torch

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1).bfloat16())
if "--advised" in sys.argv:
    model = model.float()
engine, _, _, _ = deepspeed.initialize(
    model=model,
    model_parameters=model.parameters(),
    config={
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "Adam", "params": {"torch_adam": True}},
        "zero_optimization": {"stage": 3},
    },
)
for _ in range(2):
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
