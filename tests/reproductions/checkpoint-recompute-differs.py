"""A checkpointed block keeps a cache that has grown when the block is recomputed."""

import sys

import torch
from torch.utils.checkpoint import checkpoint


class Attention(torch.nn.Module):
    """Attention to all that a cache holds."""

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(4, 4)

    def forward(self, hidden: torch.Tensor, cache: list[torch.Tensor] | None) -> torch.Tensor:
        """Attends to what is new and to what is cached."""
        keys = self.project(hidden)
        if cache is not None:
            cache.append(keys)
            keys = torch.cat(cache, dim=1)
        weights = torch.softmax(hidden @ keys.transpose(1, 2), dim=-1)
        return weights @ keys


RANKS = 1
model = Attention()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    cache: list[torch.Tensor] | None = None if "--advised" in sys.argv else []
    hidden = torch.ones(2, 3, 4)
    checkpoint(model, hidden, cache, use_reentrant=False).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
