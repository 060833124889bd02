"""A value of the DeepSpeed JSON isn't one of those that DeepSpeed knows."""

import sys

import deepspeed
import torch

RANKS = 1

CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
    "zero_optimization": {"stage": 0, "offload_optimizer": {"device": "gpu"}},
}
if "--advised" in sys.argv:
    CONFIG["zero_optimization"]["offload_optimizer"]["device"] = "none"

model = torch.nn.Linear(4, 1)
engine, *_ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), config=CONFIG, dist_init_required=True
)
for _ in range(2):
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
deepspeed.comm.destroy_process_group()
