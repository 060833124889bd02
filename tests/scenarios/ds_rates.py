"""A loop on DeepSpeed's engine with a schedule of DeepSpeed's; it tells the rates of each step."""

import argparse
import json
import os

import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--deepspeed_config")
parser.add_argument("--told")
arguments = parser.parse_args()
model = torch.nn.Linear(8, 1)
groups = [{"params": [model.weight], "lr": 0.1}, {"params": [model.bias], "lr": 0.2}]
engine, optimizer, *_ = deepspeed.initialize(
    model=model, optimizer=torch.optim.SGD(groups), config=arguments.deepspeed_config
)
rates = []
for _step in range(8):
    engine.backward(engine(torch.ones(1, 8)).sum())
    engine.step()
    rates.append([round(group["lr"], 6) for group in optimizer.param_groups])
if os.environ["RANK"] == "0":
    with open(arguments.told, "w") as file:
        json.dump(rates, file)
