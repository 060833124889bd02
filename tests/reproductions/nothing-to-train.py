"""The optimizer is made for what is left to train, and that is nothing."""

import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model

RANKS = 1


def base() -> torch.nn.Module:
    """A network without adapters."""
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))


get_peft_model(base(), LoraConfig(target_modules=["0"])).save_pretrained("adapter")
model = PeftModel.from_pretrained(base(), "adapter", is_trainable="--advised" in sys.argv)
optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1)
for _ in range(2):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
