"""Reentrant checkpointing of a block whose input takes no gradient: what comes before is frozen."""

import sys

import torch
from torch.utils.checkpoint import checkpoint


class Model(torch.nn.Module):
    """A frozen embedding, and a checkpointed block that is trained."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.embedding = torch.nn.Embedding(8, 4).requires_grad_(False)
        self.block = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
        self.head = torch.nn.Linear(4, 1).requires_grad_(False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The prediction."""
        hidden = checkpoint(self.block, self.embedding(tokens), use_reentrant=self.reentrant)
        return self.head(hidden)


RANKS = 1
model = Model(reentrant="--advised" not in sys.argv)
optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1)
for _ in range(2):
    model(torch.ones(2, 4, dtype=torch.long)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
