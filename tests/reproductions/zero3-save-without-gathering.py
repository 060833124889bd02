"""A model trained under ZeRO-3 is saved, but the configuration doesn't let it be gathered."""

import sys

import torch
from accelerate import Accelerator, DeepSpeedPlugin

RANKS = 1
plugin = DeepSpeedPlugin(zero_stage=3, zero3_save_16bit_model="--advised" in sys.argv)
plugin.deepspeed_config["train_micro_batch_size_per_gpu"] = 2
plugin.deepspeed_config["zero_allow_untested_optimizer"] = True
accelerator = Accelerator(deepspeed_plugin=plugin)
model = torch.nn.Linear(4, 1)
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.1))
for _ in range(2):
    accelerator.backward(model(torch.ones(2, 4)).sum())
    optimizer.step()
    optimizer.zero_grad()
weights = accelerator.get_state_dict(model)
accelerator.save(weights, "weights.pt")
