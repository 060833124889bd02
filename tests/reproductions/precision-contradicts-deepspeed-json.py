"""accelerate is asked for bf16, and the DeepSpeed JSON has fp16."""

import sys

import torch
from accelerate import Accelerator, DeepSpeedPlugin

RANKS = 1

config = {
    "train_micro_batch_size_per_gpu": 2,
    "fp16": {"enabled": "--advised" not in sys.argv},
    "zero_optimization": {"stage": 1},
}
plugin = DeepSpeedPlugin(hf_ds_config=config)
accelerator = Accelerator(mixed_precision="bf16", deepspeed_plugin=plugin)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
accelerator.backward(model(torch.ones(2, 4).bfloat16()).sum())
optimizer.step()
accelerator.end_training()
