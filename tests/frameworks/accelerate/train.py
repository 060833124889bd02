"""Trains a small network in a loop of its own with accelerate, as its users write it.

A block runs twice in a forward pass and is checkpointed where `--checkpoint` asks for it; with
`--one_head` the second head takes no part in the loss.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs, InitProcessGroupKwargs
from accelerate.utils import set_seed
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

SIZE = 16


class Network(nn.Module):
    """Two heads over a block that runs twice."""

    def __init__(self, mode: str, one_head: bool) -> None:
        super().__init__()
        self.mode = mode
        self.one_head = one_head
        self.entry = nn.Linear(SIZE, SIZE)
        self.block = nn.Sequential(nn.Linear(SIZE, 2 * SIZE), nn.GELU(), nn.Linear(2 * SIZE, SIZE))
        self.heads = nn.ModuleList(nn.Linear(SIZE, 1) for _ in range(2))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.entry(inputs)
        for _ in range(2):
            if self.mode == "off":
                hidden = hidden + self.block(hidden)
            else:
                reentrant = self.mode == "reentrant"
                hidden = hidden + checkpoint(self.block, hidden, use_reentrant=reentrant)
        heads = self.heads[:1] if self.one_head else self.heads
        return sum(head(hidden) for head in heads)


def data() -> DataLoader:
    random = torch.Generator().manual_seed(3)
    inputs = torch.randn(64, SIZE, generator=random)
    return DataLoader(TensorDataset(inputs, inputs.sin().sum(dim=1, keepdim=True)), batch_size=4)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", default="off", choices=["off", "reentrant", "other"])
    parser.add_argument("--one_head", action="store_true")
    parser.add_argument("--find_unused", action="store_true")
    options = parser.parse_args()
    set_seed(0)
    # Without `cpu` accelerate makes one process of all; with it, it forgets DeepSpeed.
    accelerator = Accelerator(
        cpu=os.environ.get("ACCELERATE_USE_DEEPSPEED") != "true",
        kwargs_handlers=[
            DistributedDataParallelKwargs(find_unused_parameters=options.find_unused),
            InitProcessGroupKwargs(backend="gloo"),
        ],
    )
    network = Network(options.checkpoint, options.one_head)
    optimizer = torch.optim.AdamW(network.parameters(), lr=5e-3)
    network, optimizer, batches = accelerator.prepare(network, optimizer, data())
    losses = []
    for inputs, targets in batches:
        loss = nn.functional.mse_loss(network(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).mean().item())
    if accelerator.is_main_process:
        Path("losses.json").write_text(json.dumps(losses))
    accelerator.end_training()


if __name__ == "__main__":
    main()
