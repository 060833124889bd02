"""The first layer is frozen when DeepSpeed resumes, and wasn't when the checkpoint was written."""

import sys

import deepspeed
import torch

RANKS = 1


def engine_of(frozen: bool) -> deepspeed.DeepSpeedEngine:
    """A model under DeepSpeed, of which a layer may be frozen."""
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 2},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}},
    }
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    model[0].requires_grad_(not frozen)
    trained = [one for one in model.parameters() if one.requires_grad]
    return deepspeed.initialize(model=model, model_parameters=trained, config=config)[0]


def train(engine: deepspeed.DeepSpeedEngine) -> None:
    """One step."""
    engine.backward(engine(torch.ones(1, 4)).sum())
    engine.step()


first = engine_of(frozen=False)
train(first)
first.save_checkpoint("checkpoints")
second = engine_of(frozen="--advised" not in sys.argv)
second.load_checkpoint("checkpoints")
train(second)
