"""Gradients are accumulated under no_sync, as with DDP, while ZeRO-2 partitions them."""

import contextlib
import sys

import deepspeed
import torch

STEPS = 2
model = torch.nn.Linear(4, 1)
engine, _, _, _ = deepspeed.initialize(
    model=model,
    config={
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": STEPS,
        "optimizer": {"type": "Adam", "params": {"torch_adam": True}},
        "zero_optimization": {"stage": 2},
    },
)
for number in range(2 * STEPS):
    is_between = number % STEPS < STEPS - 1 and "--advised" not in sys.argv
    with engine.no_sync() if is_between else contextlib.nullcontext():
        engine.backward(engine(torch.ones(2, 4)).sum())
    if not is_between:
        engine.step()
