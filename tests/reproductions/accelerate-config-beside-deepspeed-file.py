"""accelerate's own configuration has a value that belongs into the DeepSpeed JSON it names."""

import os
import sys

import torch
from accelerate import Accelerator, DeepSpeedPlugin

RANKS = 1

# What accelerate launch sets from the keys of deepspeed_config in its YAML file.
fields = "deepspeed_config_file,zero3_init_flag"
if "--advised" not in sys.argv:
    fields += ",gradient_accumulation_steps"
os.environ["ACCELERATE_CONFIG_DS_FIELDS"] = fields

config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1}}
accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=config))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
accelerator.backward(model(torch.ones(2, 4)).sum())
optimizer.step()
accelerator.end_training()
