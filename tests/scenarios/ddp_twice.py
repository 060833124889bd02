"""A hand-written DDP loop whose adapters all lie in one checkpointed block, which runs twice.

With `--embedded` they lie before it: the block that runs twice has nothing to train.
"""

from __future__ import annotations

import os

import torch
import toy
from ddp_lora import LowRank
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


class Network(nn.Module):
    """A checkpointed block that every sample passes twice, between frozen layers."""

    def __init__(self, checkpoints: bool, embedded: bool) -> None:
        super().__init__()
        self.checkpoints = checkpoints
        self.embedding = LowRank(toy.SIZE).requires_grad_(False)
        self.block = nn.Sequential(LowRank(toy.SIZE), nn.GELU()).requires_grad_(False)
        self.head = nn.Linear(toy.SIZE, 1).requires_grad_(False)
        adapted = self.embedding if embedded else self.block[0]
        adapted.lora_A.requires_grad_(True)
        adapted.lora_B.requires_grad_(True)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(inputs.requires_grad_())
        for _ in range(2):
            if self.checkpoints:
                hidden = checkpoint(self.block, hidden, use_reentrant=True)
            else:
                hidden = self.block(hidden)
        return self.head(hidden)


def loss_of(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(model(inputs), targets)


def main() -> None:
    parser = toy.arguments()
    parser.add_argument("--embedded", action="store_true", help="adapters before the block")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Network(not options.single, options.embedded)
    if options.single:
        toy.write(toy.train_plainly(model, loss_of), options.loss_file)
        return
    toy.join_group()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    wrapped = DistributedDataParallel(model.to(toy.device()))
    optimizer = toy.optimizer_of([one for one in model.parameters() if one.requires_grad])
    losses = []
    for inputs, targets in toy.batches(rank, world):
        loss = loss_of(wrapped, inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(toy.mean_over_ranks(loss))
    if rank == 0:
        toy.write(losses, options.loss_file)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
