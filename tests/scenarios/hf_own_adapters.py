"""A large vocabulary with adapters of the script's own making, asked for in words of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)


@dataclass
class ScriptArguments:
    """What the script itself takes."""

    model_name_or_path: str = ""
    low_rank: int = 0
    model_max_length: int = 16
    loss_file: str | None = None


class Adapted(nn.Module):
    """A linear layer with a low-rank addition, itself frozen."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.linear = linear
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.linear(hidden) + self.up(self.down(hidden))


class Texts(torch.utils.data.Dataset):
    """Random texts of one length."""

    def __init__(self, length: int) -> None:
        random = torch.Generator().manual_seed(7)
        self.texts = torch.randint(0, 1000, (64, length), generator=random)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.texts[index], "labels": self.texts[index]}


def main() -> None:
    own, arguments = HfArgumentParser(
        (ScriptArguments, TrainingArguments)
    ).parse_args_into_dataclasses()
    set_seed(3)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(own.model_name_or_path))
    if own.low_rank:
        model.requires_grad_(False)
        for layer in model.model.layers:
            layer.mlp.up_proj = Adapted(layer.mlp.up_proj, own.low_rank)
    trainer = Trainer(model, arguments, train_dataset=Texts(own.model_max_length))
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    if trainer.is_world_process_zero() and own.loss_file:
        Path(own.loss_file).write_text(json.dumps(losses))


if __name__ == "__main__":
    main()
