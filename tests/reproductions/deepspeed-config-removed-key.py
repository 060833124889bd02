"""The JSON has a section of a feature that newer DeepSpeed no longer has."""

import sys

import deepspeed
import torch

RANKS = 1
STACKS = ("current",)

CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
    "elasticity": {"enabled": False},
}
if "--advised" in sys.argv:
    del CONFIG["elasticity"]

model = torch.nn.Linear(4, 1)
engine, *_ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), config=CONFIG, dist_init_required=True
)
for _ in range(2):
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
deepspeed.comm.destroy_process_group()
