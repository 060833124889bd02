"""Between steps the model is unwrapped to generate: ZeRO-3's hooks come off and on again."""

import contextlib
import sys

import deepspeed
import torch
from deepspeed.runtime.zero import unwrap_model_for_generation

STACKS = ("older",)
engine, _, _, _ = deepspeed.initialize(
    model=torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)),
    config={
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "Adam", "params": {"torch_adam": True}},
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    },
)
for _ in range(3):
    unwrapped = unwrap_model_for_generation(engine)
    with contextlib.nullcontext() if "--advised" in sys.argv else unwrapped, torch.no_grad():
        engine.module[0](torch.ones(2, 4))
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
