"""A loop on DeepSpeed's engine; its gradients are 1, 10, 100, ...: their sum tells which count."""

import argparse
import json
import os
from pathlib import Path

import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--deepspeed_config")
parser.add_argument("--told")
arguments = parser.parse_args()
accumulation = json.loads(Path(arguments.deepspeed_config).read_text())[
    "gradient_accumulation_steps"
]


class Linear(torch.nn.Module):
    """A weight that moves by the mean of its gradients."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(8))

    def forward(self, inputs):
        """The loss."""
        return (self.weight * inputs).sum()


model = Linear()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
engine, *_ = deepspeed.initialize(
    model=model, optimizer=optimizer, config=arguments.deepspeed_config
)
for _step in range(3):
    for number in range(accumulation):
        engine.backward(engine(torch.full((8,), 10.0**number)))
        engine.step()
if os.environ["RANK"] == "0":
    moved = -model.weight[0].item() / 3
    right = sum(10.0**number for number in range(accumulation)) / accumulation
    with open(arguments.told, "w") as file:
        json.dump([moved, right], file)
