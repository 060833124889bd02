"""Nobody tells deepspeed.initialize its configuration."""

import argparse
import sys

import deepspeed
import torch

RANKS = 1

CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
}
parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
options = parser.parse_args([])
given = {"config": CONFIG} if "--advised" in sys.argv else {}

model = torch.nn.Linear(4, 1)
engine, *_ = deepspeed.initialize(
    args=options,
    model=model,
    model_parameters=model.parameters(),
    dist_init_required=True,
    **given,
)
for _ in range(2):
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
deepspeed.comm.destroy_process_group()
