"""A moving average of the weights is kept beside a model under ZeRO-3, which has none at rest."""

import sys
from contextlib import nullcontext

import deepspeed
import torch

RANKS = 1

engine, _, _, _ = deepspeed.initialize(
    model=torch.nn.Linear(4, 1),
    config={
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "Adam", "params": {"torch_adam": True}},
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    },
)
average = torch.zeros(1, 4)
weight = engine.module.weight
for _ in range(2):
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
    is_advised = "--advised" in sys.argv
    with deepspeed.zero.GatheredParameters([weight]) if is_advised else nullcontext():
        average.lerp_(weight.data, 0.1)
