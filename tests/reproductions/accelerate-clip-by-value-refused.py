"""A loop over accelerate clips each gradient's values, and now it runs under DeepSpeed."""

import sys

import torch
from accelerate import Accelerator, DeepSpeedPlugin

RANKS = 1

plugin = DeepSpeedPlugin(zero_stage=1, gradient_clipping=1.0)
accelerator = Accelerator(deepspeed_plugin=plugin)
plugin.deepspeed_config["train_micro_batch_size_per_gpu"] = 2
model = torch.nn.Linear(4, 1)
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.1))
for _ in range(2):
    accelerator.backward(model(torch.ones(2, 4)).sum())
    if "--advised" in sys.argv:
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
    else:
        accelerator.clip_grad_value_(model.parameters(), 0.1)
    optimizer.step()
    optimizer.zero_grad()
accelerator.end_training()
