"""The JSON says nothing of batch sizes."""

import sys

import deepspeed
import torch

CONFIG = {
    "gradient_accumulation_steps": 1,
    "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
}
if "--advised" in sys.argv:
    CONFIG["train_micro_batch_size_per_gpu"] = 2

model = torch.nn.Linear(4, 1)
engine, *_ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), config=CONFIG, dist_init_required=True
)
for _ in range(2):
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
deepspeed.comm.destroy_process_group()
