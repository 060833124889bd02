"""Preference training of a model with a vision tower: two passes before one backward.

As ms-swift does for DPO with an unfrozen vision tower: the chosen and the rejected answer each go
through the whole checkpointed model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import (
    HfArgumentParser,
    PretrainedConfig,
    PreTrainedModel,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.modeling_layers import GradientCheckpointingLayer


@dataclass
class DataArguments:
    """Where the losses go."""

    loss_file: str | None = None


class TinyConfig(PretrainedConfig):
    """Sizes of the model."""

    model_type = "tiny-preference"

    def __init__(self, hidden_size: int = 32, **kwargs) -> None:
        super().__init__(**kwargs)
        self.hidden_size = hidden_size


class Block(GradientCheckpointingLayer):
    """A residual block, checkpointed where the Trainer asks for it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.mlp = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.mlp(self.norm(hidden))


class Policy(PreTrainedModel):
    """Log probabilities of a text given a picture."""

    config_class = TinyConfig
    supports_gradient_checkpointing = True

    def __init__(self, config: TinyConfig) -> None:
        super().__init__(config)
        size = config.hidden_size
        self.patches = nn.Linear(48, size)
        self.vision = nn.ModuleList(Block(size) for _ in range(2))
        self.words = nn.Embedding(64, size)
        self.head = nn.Linear(size, 64)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            module.weight.data.normal_(std=0.1)

    def forward(self, pixel_values: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        hidden = self.patches(pixel_values)
        for block in self.vision:
            hidden = block(hidden)
        logits = self.head(self.words(text) + hidden.mean(dim=1, keepdim=True))
        chances = logits[:, :-1].log_softmax(dim=-1)
        return chances.gather(-1, text[:, 1:, None]).squeeze(-1).sum(dim=-1)


class PreferenceTrainer(Trainer):
    """DPO's loss without a reference model (it would be a constant here)."""

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        chosen = model(inputs["pixel_values"], inputs["chosen"])
        rejected = model(inputs["pixel_values"], inputs["rejected"])
        loss = -nn.functional.logsigmoid(0.1 * (chosen - rejected)).mean()
        return (loss, {}) if return_outputs else loss


class Preferences(torch.utils.data.Dataset):
    """Random pictures with a chosen and a rejected text."""

    def __init__(self, count: int = 96) -> None:
        random = torch.Generator().manual_seed(7)
        self.pixels = torch.randn(count, 9, 48, generator=random)
        self.texts = torch.randint(0, 64, (count, 2, 8), generator=random)

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        chosen, rejected = self.texts[index]
        return {"pixel_values": self.pixels[index], "chosen": chosen, "rejected": rejected}


def main() -> None:
    data, training = HfArgumentParser(
        (DataArguments, TrainingArguments)
    ).parse_args_into_dataclasses()
    training.remove_unused_columns = False
    set_seed(training.seed)
    trainer = PreferenceTrainer(Policy(TinyConfig()), training, train_dataset=Preferences())
    trainer.model_accepts_loss_kwargs = False
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    if trainer.is_world_process_zero() and data.loss_file:
        Path(data.loss_file).write_text(json.dumps(losses))


if __name__ == "__main__":
    main()
