"""The first layer is frozen when training resumes, and wasn't when the checkpoint was written."""

import sys

import torch

RANKS = 1


def made(frozen: bool) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A model and an optimizer of what is trained."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    model[0].requires_grad_(not frozen)
    trained = [one for one in model.parameters() if one.requires_grad]
    return model, torch.optim.AdamW(trained, lr=0.1)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """One step."""
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()


model, optimizer = made(frozen=False)
train(model, optimizer)
torch.save(optimizer.state_dict(), "optimizer.pt")

model, optimizer = made(frozen="--advised" not in sys.argv)
optimizer.load_state_dict(torch.load("optimizer.pt"))
train(model, optimizer)
