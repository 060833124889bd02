"""A small convolution network in an engine whose configuration is code: cifar10_deepspeed.py."""

from __future__ import annotations

import argparse
from typing import Any

import deepspeed
import torch
from torch import nn
from torch.utils.data import TensorDataset
from witness import Witness


def add_argument() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="CIFAR")
    parser.add_argument("-e", "--epochs", default=30, type=int)
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--dtype", default="fp16", type=str, choices=["bf16", "fp16", "fp32"])
    parser.add_argument("--stage", default=0, type=int, choices=[0, 1, 2, 3])
    parser = deepspeed.add_config_arguments(parser)
    return parser.parse_args()


def get_ds_config(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "train_batch_size": 16,
        "steps_per_print": 2000,
        "optimizer": {"type": "Adam", "params": {"lr": 0.001, "torch_adam": True}},
        "gradient_clipping": 1.0,
        "bf16": {"enabled": args.dtype == "bf16"},
        "fp16": {"enabled": args.dtype == "fp16", "loss_scale": 0, "initial_scale_power": 15},
        "zero_optimization": {
            "stage": args.stage,
            "reduce_bucket_size": 50000000,
            "overlap_comm": False,
        },
    }


class Net(nn.Module):
    """Two convolutions, two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc = nn.Sequential(nn.Linear(16 * 5 * 5, 84), nn.ReLU(), nn.Linear(84, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(torch.relu(self.conv2(x)))
        return self.fc(x.flatten(1))


def main(args: argparse.Namespace) -> None:
    deepspeed.init_distributed("gloo")
    random = torch.Generator().manual_seed(3)
    pictures = torch.randn(64, 3, 32, 32, generator=random)
    net = Net()
    Witness(net, net.fc[0])
    model_engine, _, trainloader, _ = deepspeed.initialize(
        args=args,
        model=net,
        model_parameters=list(filter(lambda p: p.requires_grad, net.parameters())),
        training_data=TensorDataset(pictures, torch.arange(64) % 10),
        config=get_ds_config(args),
    )
    dtype = {"bf16": torch.bfloat16, "fp16": torch.half, "fp32": torch.float32}[args.dtype]
    for _ in range(args.epochs):
        for inputs, labels in trainloader:
            loss = nn.functional.cross_entropy(model_engine(inputs.to(dtype)), labels)
            model_engine.backward(loss)
            model_engine.step()


if __name__ == "__main__":
    main(add_argument())
