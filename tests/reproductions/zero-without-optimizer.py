"""ZeRO-2 is configured, but nobody gives it an optimizer."""

import sys

import deepspeed
import torch

config: dict[str, object] = {
    "train_micro_batch_size_per_gpu": 2,
    "zero_optimization": {"stage": 2},
}
if "--advised" in sys.argv:
    config["optimizer"] = {"type": "Adam", "params": {"torch_adam": True}}
model = torch.nn.Linear(4, 1)
engine, _, _, _ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), config=config
)
for _ in range(2):
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
