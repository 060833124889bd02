"""A run that DeepSpeed saved in bf16 is resumed in fp32."""

import sys

import deepspeed
import torch

RANKS = 1


def engine_of(bf16: bool) -> deepspeed.DeepSpeedEngine:
    """A model under DeepSpeed."""
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 2},
        "bf16": {"enabled": bf16},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}},
    }
    model = torch.nn.Linear(4, 1)
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


def train(engine: deepspeed.DeepSpeedEngine) -> None:
    """One step."""
    batch = torch.ones(1, 4, dtype=next(engine.parameters()).dtype)
    engine.backward(engine(batch).float().sum())
    engine.step()


first = engine_of(bf16=True)
train(first)
first.save_checkpoint("checkpoints")
second = engine_of(bf16="--advised" in sys.argv)
second.load_checkpoint("checkpoints")
train(second)
