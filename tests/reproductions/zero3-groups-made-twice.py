"""Two models are loaded under ZeRO-3 with zero_hpz_partition_size; each makes the groups anew."""

import sys

import deepspeed
import torch

zero: dict[str, object] = {"stage": 3}
if "--advised" not in sys.argv:
    zero["zero_hpz_partition_size"] = 2
config = {
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "Adam", "params": {"torch_adam": True}},
    "zero_optimization": zero,
}
deepspeed.init_distributed("gloo")
with deepspeed.zero.Init(config_dict_or_path=config):
    policy = torch.nn.Linear(4, 1)
with deepspeed.zero.Init(config_dict_or_path=config):
    reference = torch.nn.Linear(4, 1)
engine, _, _, _ = deepspeed.initialize(model=policy, config=config)
for _ in range(2):
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
