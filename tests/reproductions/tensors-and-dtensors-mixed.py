"""A script looks tokens up in the embedding of a model that FSDP2 has sharded, past its forward."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


class Model(torch.nn.Module):
    """Takes tokens, or their embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(16, 8)
        self.head = torch.nn.Linear(8, 1)

    def forward(
        self, tokens: torch.Tensor | None = None, embedded: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The head's values."""
        return self.head(self.embedding(tokens) if embedded is None else embedded)


dist.init_process_group("gloo")
model = Model()
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
tokens = torch.ones(2, 4, dtype=torch.long)
for _ in range(2):
    given = {"tokens": tokens} if "--advised" in sys.argv else {"embedded": model.embedding(tokens)}
    model(**given).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
