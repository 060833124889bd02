"""ZeRO gets an optimizer that it has no list entry for."""

import sys

import deepspeed
import torch

CONFIG = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1}}
if "--advised" in sys.argv:
    CONFIG["zero_allow_untested_optimizer"] = True

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.1)
engine, *_ = deepspeed.initialize(
    model=model, optimizer=optimizer, config=CONFIG, dist_init_required=True
)
for _ in range(2):
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
deepspeed.comm.destroy_process_group()
