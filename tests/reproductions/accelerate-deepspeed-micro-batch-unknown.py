"""Only the model and its optimizer are prepared, so nothing tells DeepSpeed the micro-batch."""

import sys

import torch
from accelerate import Accelerator, DeepSpeedPlugin

RANKS = 1

accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=1))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
if "--advised" in sys.argv:
    config = accelerator.state.deepspeed_plugin.deepspeed_config
    config["train_micro_batch_size_per_gpu"] = 2
model, optimizer = accelerator.prepare(model, optimizer)
for _ in range(2):
    accelerator.backward(model(torch.ones(2, 4)).sum())
    optimizer.step()
    optimizer.zero_grad()
accelerator.end_training()
