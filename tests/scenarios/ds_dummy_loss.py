"""A hand-written ZeRO-3 loop with a dummy loss, taken over from a DDP version of the script.

The term was put in so that every parameter of the adapter takes part in the loss.
"""

from __future__ import annotations

import contextlib

import torch
import toy
from torch import nn


class Adapted(nn.Module):
    """An encoder, an adapter, a head; the adapter may be left out of the forward pass."""

    def __init__(self, uses_adapter: bool) -> None:
        super().__init__()
        self.uses_adapter = uses_adapter
        self.encoder = toy.block()
        self.adapter = nn.Linear(toy.SIZE, toy.SIZE)
        self.head = nn.Linear(toy.SIZE, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(inputs)
        if self.uses_adapter:
            hidden = hidden + self.adapter(hidden)
        return self.head(hidden)


def loss_of(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    loss = nn.functional.mse_loss(model(inputs).float(), targets)
    adapter = getattr(model, "module", model).adapter
    dummy_loss = sum(p.sum() for p in adapter.parameters()) * 0.0
    return loss + dummy_loss


def main() -> None:
    parser = toy.arguments()
    parser.add_argument("--ds_config", default="zero3.json")
    parser.add_argument("--adapter_unused", action="store_true")
    options = parser.parse_args()
    partitioned = contextlib.nullcontext()
    if not options.single:
        import deepspeed

        deepspeed.init_distributed()
        partitioned = deepspeed.zero.Init(config_dict_or_path=options.ds_config)
    torch.manual_seed(0)
    with partitioned:
        model = Adapted(uses_adapter=not options.adapter_unused)
    if options.single:
        toy.write(toy.train_plainly(model, loss_of), options.loss_file)
        return
    engine, _, _, _ = deepspeed.initialize(
        model=model, optimizer=toy.optimizer_of(model.parameters()), config=options.ds_config
    )
    losses = []
    for inputs, targets in toy.batches(engine.global_rank, engine.world_size):
        loss = loss_of(engine, inputs, targets)
        engine.backward(loss)
        engine.step()
        losses.append(toy.mean_over_ranks(loss))
    if engine.global_rank == 0:
        toy.write(losses, options.loss_file)


if __name__ == "__main__":
    main()
