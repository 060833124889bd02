"""What the hand-written loops train: data, blocks, and the plain loop that they must agree with."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn

SIZE = 16
GLOBAL_BATCH = 8
STEPS = 12


def arguments() -> argparse.ArgumentParser:
    """The options that all these scripts have."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--loss_file")
    parser.add_argument("--single", action="store_true", help="one process, no checkpointing")
    parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", "0")))
    return parser


def device() -> torch.device:
    """Where this rank trains: its accelerator, or the host where there is none."""
    if not torch.accelerator.is_available():
        return torch.device("cpu")
    accelerator = torch.accelerator.current_accelerator()
    return torch.device(accelerator.type, int(os.environ.get("LOCAL_RANK", "0")))


def join_group() -> None:
    """Joins the process group, by the backend of the device."""
    if device().type != "cpu":
        torch.accelerator.set_device_index(device().index)
    backend = torch.distributed.get_default_backend_for_device(device())
    torch.distributed.init_process_group(backend)


def block() -> nn.Module:
    """A block worth checkpointing."""
    return nn.Sequential(nn.Linear(SIZE, 2 * SIZE), nn.GELU(), nn.Linear(2 * SIZE, SIZE))


def batches(rank: int = 0, world: int = 1) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """This rank's part of every global batch."""
    random = torch.Generator().manual_seed(3)
    for _ in range(STEPS):
        inputs = torch.randn(GLOBAL_BATCH, SIZE, generator=random)
        targets = inputs.sin().sum(dim=1, keepdim=True)
        own = slice(rank * GLOBAL_BATCH // world, (rank + 1) * GLOBAL_BATCH // world)
        yield inputs[own].to(device()), targets[own].to(device())


def optimizer_of(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer of all loops."""
    return torch.optim.AdamW(parameters, lr=5e-3)


def train_plainly(model: nn.Module, loss_of: Callable[..., torch.Tensor]) -> list[float]:
    """The reference: one process, the whole global batch at once."""
    model.to(device())
    optimizer = optimizer_of([one for one in model.parameters() if one.requires_grad])
    losses = []
    for inputs, targets in batches():
        loss = loss_of(model, inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def mean_over_ranks(loss: torch.Tensor) -> float:
    """The loss of the global batch."""
    value = loss.detach().float().clone()
    torch.distributed.all_reduce(value)
    return value.item() / torch.distributed.get_world_size()


def write(losses: list[float], path: str | None) -> None:
    """Writes the losses for whoever compares them."""
    if path:
        Path(path).write_text(json.dumps(losses))
