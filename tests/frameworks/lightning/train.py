"""Trains a small network with PyTorch Lightning, as its users write it.

A block runs twice in a forward pass and is checkpointed where `--checkpoint` asks for it; with
`--one_head` the second head takes no part in the loss.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import lightning as lt
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

SIZE = 16


class Network(lt.LightningModule):
    """Two heads over a block that runs twice."""

    def __init__(self, mode: str, one_head: bool) -> None:
        super().__init__()
        self.mode = mode
        self.one_head = one_head
        self.losses: list[float] = []
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

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        inputs, targets = batch
        loss = nn.functional.mse_loss(self(inputs), targets)
        self.losses.append(self.all_gather(loss.detach()).mean().item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=5e-3)


class OnCpu(lt.pytorch.accelerators.CUDAAccelerator):
    """Processors in the place of GPUs, for Lightning's DeepSpeed strategy takes nothing else."""

    def setup_device(self, device: torch.device) -> None:
        pass

    def setup(self, trainer: lt.Trainer) -> None:
        pass

    def teardown(self) -> None:
        pass

    @staticmethod
    def parse_devices(devices: int | str) -> int:
        return int(devices)

    @staticmethod
    def get_parallel_devices(devices: int) -> list[torch.device]:
        return [torch.device("cpu", index) for index in range(devices)]

    @staticmethod
    def is_available() -> bool:
        return True


def data() -> DataLoader:
    random = torch.Generator().manual_seed(3)
    inputs = torch.randn(96, SIZE, generator=random)
    return DataLoader(TensorDataset(inputs, inputs.sin().sum(dim=1, keepdim=True)), batch_size=4)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", default="ddp")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--checkpoint", default="off", choices=["off", "reentrant", "other"])
    parser.add_argument("--one_head", action="store_true")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    lt.seed_everything(0)
    network = Network(options.checkpoint, options.one_head)
    trainer = lt.Trainer(
        accelerator=OnCpu() if options.strategy.startswith("deepspeed") else "cpu",
        strategy=options.strategy,
        devices=options.devices,
        max_steps=8,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(network, data())
    if trainer.is_global_zero:
        Path("losses.json").write_text(json.dumps(network.losses))


if __name__ == "__main__":
    main()
