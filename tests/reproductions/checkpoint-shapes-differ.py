"""An adapter of rank 8 is resumed into one of rank 16."""

import sys

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict

RANKS = 1


def adapted(rank: int) -> torch.nn.Module:
    """A model with an adapter of some rank."""
    base = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 1))
    return get_peft_model(base, LoraConfig(r=rank, target_modules=["0"]))


torch.save(get_peft_model_state_dict(adapted(8)), "adapter.pt")

model = adapted(8 if "--advised" in sys.argv else 16)
set_peft_model_state_dict(model, torch.load("adapter.pt"))
trained = [one for one in model.parameters() if one.requires_grad]
optimizer = torch.optim.SGD(trained, lr=0.1)
model(torch.ones(2, 32)).sum().backward()
optimizer.step()
