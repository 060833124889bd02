"""The script takes the embedding's weight itself; ZeRO-3 gathers it only for its own module."""

import sys

import deepspeed
import torch


class Model(torch.nn.Module):
    """An embedding and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(8, 4)
        self.head = torch.nn.Linear(4, 1)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The prediction for embedded tokens."""
        return self.head(hidden)


engine, _, _, _ = deepspeed.initialize(
    model=Model(),
    config={
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "Adam", "params": {"torch_adam": True}},
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    },
)
tokens = torch.ones(2, 3, dtype=torch.long)
for _ in range(2):
    if "--advised" in sys.argv:
        hidden = engine.module.embedding(tokens)
    else:
        hidden = torch.nn.functional.embedding(tokens, engine.module.embedding.weight)
    engine.backward(engine(hidden).sum())
    engine.step()
