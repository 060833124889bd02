"""A checkpoint of the whole model is loaded into the model with adapters."""

import sys

import torch
from peft import LoraConfig, get_peft_model

RANKS = 1


def base() -> torch.nn.Module:
    """The model without adapters."""
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))


torch.save(base().state_dict(), "checkpoint.pt")

model = base()
if "--advised" in sys.argv:
    model.load_state_dict(torch.load("checkpoint.pt"))
model = get_peft_model(model, LoraConfig(target_modules=["0"]))
if "--advised" not in sys.argv:
    model.load_state_dict(torch.load("checkpoint.pt"))
trained = [one for one in model.parameters() if one.requires_grad]
optimizer = torch.optim.SGD(trained, lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
