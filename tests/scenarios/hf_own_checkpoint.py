"""A vision-language model that checkpoints its blocks itself, trained by Hugging Face's Trainer.

The Trainer's own switch is off. As it is in the wild, the vision tower runs once for each slice of
a picture, and its blocks are checkpointed reentrantly: `--form plain` in an nn.Module,
`--form pretrained` in a PreTrainedModel that has no checkpointing of transformers' kind,
`--form enabled` in one that has, switched on by the script. With `--picky 7` the script leaves with
that code where its blocks are checkpointed in another way, or not at all.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import (
    HfArgumentParser,
    PretrainedConfig,
    PreTrainedModel,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.modeling_layers import GradientCheckpointingLayer

SIZE, WORDS = 32, 64


@dataclass
class ScriptArguments:
    """What the script itself takes."""

    form: str = "plain"
    whole: bool = False
    picky: int = 0
    loss_file: str | None = None


class Block(GradientCheckpointingLayer):
    """A residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(SIZE)
        self.mlp = nn.Sequential(nn.Linear(SIZE, 2 * SIZE), nn.GELU(), nn.Linear(2 * SIZE, SIZE))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.mlp(self.norm(hidden))


class Tower(nn.Module):
    """A vision tower and a language model over its features."""

    def __init__(self, own: bool, picky: int) -> None:
        super().__init__()
        self.patches = nn.Linear(48, SIZE)
        self.vision = nn.ModuleList(Block() for _ in range(2))
        self.words = nn.Embedding(WORDS, SIZE)
        self.language = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(SIZE, WORDS)
        self.own, self.picky = own, picky

    def run(self, block: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
        if not self.own:
            return block(hidden)
        return checkpoint(self.checked, block, hidden, use_reentrant=True)

    def checked(self, block: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
        """A block, which knows reentrant checkpointing by running without a graph at first."""
        in_backward = torch._C._current_graph_task_id() != -1
        if self.picky and torch.is_grad_enabled() and not in_backward:
            sys.exit(self.picky)
        return block(hidden)

    def forward(self, pixel_values, input_ids, labels) -> dict[str, torch.Tensor]:
        seen = 0
        for picture in pixel_values.unbind(dim=1):
            hidden = self.patches(picture)
            for block in self.vision:
                hidden = self.run(block, hidden)
            seen = seen + hidden.mean(dim=1, keepdim=True)
        hidden = self.words(input_ids) + seen
        for block in self.language:
            hidden = self.run(block, hidden)
        logits = self.head(hidden)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "logits": logits}


class OwnConfig(PretrainedConfig):
    """Nothing but a name."""

    model_type = "own-checkpoint"


class Pretrained(PreTrainedModel):
    """The same as transformers wants it, without checkpointing."""

    config_class = OwnConfig

    def __init__(self, config: OwnConfig, own: bool = True, picky: int = 0) -> None:
        super().__init__(config)
        self.tower = Tower(own, picky)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Keeps torch's own."""

    def forward(self, pixel_values, input_ids, labels) -> dict[str, torch.Tensor]:
        return self.tower(pixel_values, input_ids, labels)


class Enabled(Pretrained):
    """With checkpointing of transformers' kind."""

    supports_gradient_checkpointing = True


class Pictures(torch.utils.data.Dataset):
    """Random pictures of two slices with a text."""

    def __init__(self, count: int = 96) -> None:
        random = torch.Generator().manual_seed(7)
        self.pixels = torch.randn(count, 2, 9, 48, generator=random)
        self.texts = torch.randint(0, WORDS, (count, 12), generator=random)

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        text = self.texts[index]
        return {"pixel_values": self.pixels[index], "input_ids": text, "labels": text.roll(-1)}


def model_of(script: ScriptArguments) -> nn.Module:
    """The model in one of its forms; whole keeps all activations."""
    own = not script.whole
    if script.form == "plain":
        return Tower(own, script.picky)
    if script.form == "pretrained":
        return Pretrained(OwnConfig(), own, script.picky)
    model = Enabled(OwnConfig(), own=False)
    if own:
        model.gradient_checkpointing_enable({"use_reentrant": True})
    return model


def main() -> None:
    script, training = HfArgumentParser(
        (ScriptArguments, TrainingArguments)
    ).parse_args_into_dataclasses()
    set_seed(training.seed)
    trainer = Trainer(model_of(script), training, train_dataset=Pictures())
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    if trainer.is_world_process_zero() and script.loss_file:
        Path(script.loss_file).write_text(json.dumps(losses))


if __name__ == "__main__":
    main()
