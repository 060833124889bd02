"""A checkpoint that holds the run's arguments is loaded by a torch that expects tensors only."""

import argparse
import sys

import torch

RANKS = 1
model = torch.nn.Linear(4, 1)
arguments = argparse.Namespace(epochs=2, lr=0.1)
torch.save({"model": model.state_dict(), "arguments": arguments}, "checkpoint.pt")

own = {"weights_only": False} if "--advised" in sys.argv else {}
checkpoint = torch.load("checkpoint.pt", **own)
model.load_state_dict(checkpoint["model"])
optimizer = torch.optim.SGD(model.parameters(), lr=checkpoint["arguments"].lr)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
