"""A hand-written DDP loop over a network with a second head that the loss doesn't use."""

from __future__ import annotations

import os

import torch
import toy
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class TwoHeads(nn.Module):
    """A network whose second head is for another task."""

    def __init__(self) -> None:
        super().__init__()
        self.body = toy.block()
        self.head = nn.Linear(toy.SIZE, 1)
        self.other_head = nn.Linear(toy.SIZE, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(inputs))


def loss_of(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(model(inputs), targets)


def main() -> None:
    options = toy.arguments().parse_args()
    torch.manual_seed(0)
    model = TwoHeads()
    if options.single:
        toy.write(toy.train_plainly(model, loss_of), options.loss_file)
        return
    toy.join_group()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    wrapped = DistributedDataParallel(model.to(toy.device()))
    optimizer = toy.optimizer_of(model.parameters())
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
