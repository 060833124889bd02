"""Adapters without peft, as DeepSpeed-Chat's lora.py makes them."""

from __future__ import annotations

import math

import torch
from torch import nn


class LinearLayer_LoRA(nn.Module):  # noqa: N801 - as in the original
    """A frozen linear layer with a low-rank addition."""

    def __init__(self, weight: nn.Parameter, lora_dim: int, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias
        rows, columns = weight.shape
        self.lora_right_weight = nn.Parameter(torch.empty(columns, lora_dim))
        self.lora_left_weight = nn.Parameter(torch.zeros(lora_dim, rows))
        nn.init.kaiming_uniform_(self.lora_right_weight, a=math.sqrt(5))
        self.weight.requires_grad = False

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        plain = nn.functional.linear(hidden, self.weight, self.bias)
        return plain + hidden @ self.lora_right_weight @ self.lora_left_weight


def convert_linear_layer_to_lora(
    model: nn.Module, part_module_name: str, lora_dim: int
) -> nn.Module:
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and part_module_name in name:
            parent, _, last = name.rpartition(".")
            added = LinearLayer_LoRA(module.weight, lora_dim, module.bias)
            setattr(model.get_submodule(parent), last, added.to(module.weight.dtype))
    return model


def only_optimize_lora_parameters(model: nn.Module) -> nn.Module:
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "lora_right_weight" in name or "lora_left_weight" in name
    return model
