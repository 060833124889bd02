"""DeepSpeed saves adapters without their frozen base, and is to find the base when it resumes."""

import sys

import deepspeed
import torch
from peft import LoraConfig, get_peft_model

RANKS = 1


def made() -> deepspeed.DeepSpeedEngine:
    """A model with an adapter under DeepSpeed."""
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 2},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}},
    }
    base = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    model = get_peft_model(base, LoraConfig(target_modules=["0"]))
    trained = [one for one in model.parameters() if one.requires_grad]
    return deepspeed.initialize(model=model, model_parameters=trained, config=config)[0]


def train(engine: deepspeed.DeepSpeedEngine) -> None:
    """One step."""
    engine.backward(engine(torch.ones(1, 4)).sum())
    engine.step()


first = made()
train(first)
first.save_checkpoint("checkpoints", exclude_frozen_parameters=True)
second = made()
second.load_checkpoint("checkpoints", load_module_strict="--advised" not in sys.argv)
train(second)
