"""A hand-written DeepSpeed loop whose model runs one checkpointed block twice.

The model's own code asks for the reentrant implementation, as code written before torch 2.0 does.
"""

from __future__ import annotations

import torch
import toy
from torch import nn
from torch.utils.checkpoint import checkpoint


class Looped(nn.Module):
    """A network that goes through its block twice."""

    def __init__(self, checkpoints: bool) -> None:
        super().__init__()
        self.checkpoints = checkpoints
        self.entry = nn.Linear(toy.SIZE, toy.SIZE)
        self.block = toy.block()
        self.exit = nn.Linear(toy.SIZE, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.entry(inputs)
        for _ in range(2):
            if self.checkpoints:
                hidden = hidden + checkpoint(self.block, hidden, use_reentrant=True)
            else:
                hidden = hidden + self.block(hidden)
        return self.exit(hidden)


def loss_of(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(model(inputs).float(), targets)


def main() -> None:
    parser = toy.arguments()
    parser.add_argument("--deepspeed_config")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Looped(checkpoints=not options.single)
    if options.single:
        toy.write(toy.train_plainly(model, loss_of), options.loss_file)
        return
    import deepspeed

    engine, _, _, _ = deepspeed.initialize(
        args=options, model=model, optimizer=toy.optimizer_of(model.parameters())
    )
    dtype = next(model.parameters()).dtype
    losses = []
    for inputs, targets in toy.batches(engine.global_rank, engine.world_size):
        loss = loss_of(engine, inputs.to(dtype), targets)
        engine.backward(loss)
        engine.step()
        losses.append(toy.mean_over_ranks(loss))
    if engine.global_rank == 0:
        print("losses", losses)
        toy.write(losses, options.loss_file)


if __name__ == "__main__":
    main()
