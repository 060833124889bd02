"""Weights are loaded by load_state_dict into a model that ZeRO-3 has partitioned already."""

import sys

import deepspeed
import torch

config = {
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "Adam", "params": {"torch_adam": True}},
    "zero_optimization": {"stage": 3},
}
deepspeed.init_distributed("gloo")
saved = torch.nn.Linear(4, 1).state_dict()
with deepspeed.zero.Init(config_dict_or_path=config):
    model = torch.nn.Linear(4, 1)
if "--advised" in sys.argv:
    with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0):
        if torch.distributed.get_rank() == 0:
            model.load_state_dict(saved)
else:
    model.load_state_dict(saved)
engine, _, _, _ = deepspeed.initialize(model=model, config=config)
for _ in range(2):
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
