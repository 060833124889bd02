"""The head shares its weight with the embedding, and FSDP2 is to shard the head by itself."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


class Model(torch.nn.Module):
    """A language model of one layer whose head is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(16, 8)
        self.layer = torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(8, 16, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The logits."""
        return self.head(self.layer(self.embedding(tokens)))


dist.init_process_group("gloo")
model = Model()
fully_shard(model.layer)
fully_shard([model.embedding, model.head] if "--advised" in sys.argv else model.head)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 4, dtype=torch.long)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
