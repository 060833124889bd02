"""A run that was saved under ZeRO stage 2 is resumed under stage 3."""

import sys

import deepspeed
import torch

RANKS = 1


def engine_of(stage: int) -> deepspeed.DeepSpeedEngine:
    """A model under DeepSpeed."""
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": stage},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}},
    }
    model = torch.nn.Linear(4, 1)
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


def train(engine: deepspeed.DeepSpeedEngine) -> None:
    """One step."""
    engine.backward(engine(torch.ones(1, 4)).sum())
    engine.step()


first = engine_of(2)
train(first)
first.save_checkpoint("checkpoints")
second = engine_of(2 if "--advised" in sys.argv else 3)
second.load_checkpoint("checkpoints")
train(second)
