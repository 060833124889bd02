"""A hand-written DDP loop over a frozen network with low-rank adapters and checkpointing."""

from __future__ import annotations

import os

import torch
import toy
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


class LowRank(nn.Module):
    """A frozen linear layer with a trained update of low rank."""

    def __init__(self, size: int, rank: int = 4) -> None:
        super().__init__()
        self.base = nn.Linear(size, size)
        self.lora_A = nn.Linear(size, rank, bias=False)
        self.lora_B = nn.Linear(rank, size, bias=False)
        self.base.requires_grad_(False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.base(inputs) + self.lora_B(self.lora_A(inputs))


class Network(nn.Module):
    """Two checkpointed blocks with adapters."""

    def __init__(self, checkpoints: bool) -> None:
        super().__init__()
        self.checkpoints = checkpoints
        self.blocks = nn.ModuleList(nn.Sequential(LowRank(toy.SIZE), nn.GELU()) for _ in range(2))
        self.head = nn.Linear(toy.SIZE, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = inputs.requires_grad_()
        for block in self.blocks:
            if self.checkpoints:
                hidden = checkpoint(block, hidden, use_reentrant=True)
            else:
                hidden = block(hidden)
        return self.head(hidden)


def loss_of(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(model(inputs), targets)


def main() -> None:
    options = toy.arguments().parse_args()
    torch.manual_seed(0)
    model = Network(checkpoints=not options.single)
    if options.single:
        toy.write(toy.train_plainly(model, loss_of), options.loss_file)
        return
    toy.join_group()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    wrapped = DistributedDataParallel(model.to(toy.device()), find_unused_parameters=True)
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = toy.optimizer_of(trained)
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
