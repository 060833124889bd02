"""YAML 1.1 reads 1e-5, without a point, as a text."""

import sys

import torch
import yaml

RANKS = 1

options = yaml.safe_load("learning_rate: 1e-5")
rate = float(options["learning_rate"]) if "--advised" in sys.argv else options["learning_rate"]
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
