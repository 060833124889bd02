"""A model is built without data, and moved before its weights are loaded."""

import sys

import torch

RANKS = 1
saved = torch.nn.Linear(4, 1).state_dict()
with torch.device("meta"):
    model = torch.nn.Linear(4, 1)
model = model.to_empty(device="cpu") if "--advised" in sys.argv else model.to("cpu")
model.load_state_dict(saved)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
