"""The JSON's train_batch_size is smaller than what one step of all ranks takes."""

import sys

import deepspeed
import torch

CONFIG = {
    "train_batch_size": 4,
    "gradient_accumulation_steps": 8,
    "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
}
if "--advised" in sys.argv:
    CONFIG["train_batch_size"] = 16

model = torch.nn.Linear(4, 1)
engine, *_ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), config=CONFIG, dist_init_required=True
)
for _ in range(8):
    engine.backward(engine(torch.ones(1, 4)).sum())
    engine.step()
deepspeed.comm.destroy_process_group()
