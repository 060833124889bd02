"""The optimizer is accelerate's placeholder, but nothing has enabled DeepSpeed."""

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import DummyOptim

accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 1)
if "--advised" in sys.argv:
    plugin = accelerator.state.deepspeed_plugin
    in_json = plugin is not None and "optimizer" in plugin.deepspeed_config
    maker = DummyOptim if in_json else torch.optim.AdamW
else:
    maker = DummyOptim
optimizer = maker(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
for _ in range(2):
    accelerator.backward(model(torch.ones(2, 4)).sum())
    optimizer.step()
    optimizer.zero_grad()
accelerator.end_training()
