"""A loop under ZeRO-2 whose block runs twice from the fifth step on: reentrant, that ends it.

trains_otherwise.py [--wrong] [--loss_file FILE] [--single]

Wrong, the block computes something else where non-reentrant checkpointing runs it again: as one
does that depends on state. Both ways of the same training are right without that.
"""

import os

import torch
import toy
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS, TWICE_FROM = 60, 4


class Block(torch.nn.Module):
    """A block with a residual, which knows whether its first run had gradients."""

    def __init__(self, *, is_wrong: bool) -> None:
        super().__init__()
        self.hidden = toy.block()
        self.is_wrong = is_wrong
        self.is_backward = self.had_gradients = False

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if not self.is_backward:
            self.had_gradients = torch.is_grad_enabled()
        elif self.is_wrong and self.had_gradients:
            inputs = (inputs.detach() * torch.linspace(-2, 2, toy.SIZE)).requires_grad_()
        return inputs + self.hidden(inputs)


def main() -> None:
    parser = toy.arguments()
    parser.add_argument("--wrong", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    block, head = Block(is_wrong=options.wrong), torch.nn.Linear(toy.SIZE, 1)
    net = torch.nn.ModuleDict({"block": block, "head": head})

    def forward(inputs: torch.Tensor, step: int) -> torch.Tensor:
        found = inputs.requires_grad_()
        for _ in range(2 if step >= TWICE_FROM else 1):
            plain = options.single
            found = block(found) if plain else checkpoint(block, found, use_reentrant=True)
        return head(found)

    net.forward = forward
    inputs = torch.randn(STEPS * toy.GLOBAL_BATCH, toy.SIZE)
    data = TensorDataset(inputs, inputs.sin().sum(dim=1, keepdim=True))
    optimizer, losses = toy.optimizer_of(net.parameters()), []
    engine, sampler, size = net, None, toy.GLOBAL_BATCH
    if not options.single:
        import deepspeed

        deepspeed.init_distributed()
        sampler = DistributedSampler(data, shuffle=False)
        size //= torch.distributed.get_world_size()
        config = {"train_micro_batch_size_per_gpu": size, "zero_optimization": {"stage": 2}}
        config["zero_allow_untested_optimizer"] = True
        engine, *_ = deepspeed.initialize(model=net, optimizer=optimizer, config=config)
    for step, (given, targets) in enumerate(DataLoader(data, size, sampler=sampler)):
        loss = torch.nn.functional.mse_loss(engine(given, step), targets)
        block.is_backward = True
        loss.backward() if options.single else engine.backward(loss)
        block.is_backward = False
        (optimizer if options.single else engine).step()
        optimizer.zero_grad()
        losses.append(loss.item() if options.single else toy.mean_over_ranks(loss))
    if os.environ.get("RANK", "0") == "0":
        toy.write(losses, options.loss_file)
    if not options.single:
        torch.distributed.destroy_process_group()


main()
