"""Fine-tunes a small vision-language model on pictures that come in two slices.

Nothing here knows of safe-launch. As in MiniCPM-V and its kin, the trainable vision tower sees one
slice of a picture after the other, so each of its layers runs twice before the backward pass.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
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
from transformers.modeling_outputs import CausalLMOutput


@dataclass
class DataArguments:
    """What is trained on, and where the losses go."""

    samples: int = field(default=96, metadata={"help": "pictures in the data set"})
    loss_file: str | None = field(default=None, metadata={"help": "write the losses to this file"})


class TinyVisionConfig(PretrainedConfig):
    """Sizes of the model."""

    model_type = "tiny-vision"

    def __init__(self, hidden_size: int = 32, layers: int = 2, vocabulary: int = 64, **kwargs):
        super().__init__(**kwargs)
        self.hidden_size = hidden_size
        self.layers = layers
        self.vocabulary = vocabulary


class Block(nn.Module):
    """A residual block, checkpointed where the Trainer asks for it."""

    gradient_checkpointing = False  # transformers sets it, and the function that checkpoints

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.mlp = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        if self.gradient_checkpointing and self.training:
            return self._gradient_checkpointing_func(self.transform, hidden)
        return self.transform(hidden)

    def transform(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.mlp(self.norm(hidden))


class TinyVisionModel(PreTrainedModel):
    """A vision tower that is run on each slice, and a language model over its features."""

    config_class = TinyVisionConfig
    supports_gradient_checkpointing = True

    def __init__(self, config: TinyVisionConfig) -> None:
        super().__init__(config)
        size = config.hidden_size
        self.patches = nn.Linear(48, size)
        self.vision = nn.ModuleList(Block(size) for _ in range(config.layers))
        self.words = nn.Embedding(config.vocabulary, size)
        self.language = nn.ModuleList(Block(size) for _ in range(config.layers))
        self.head = nn.Linear(size, config.vocabulary)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.words

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            module.weight.data.normal_(std=0.1)

    def see(self, picture: torch.Tensor) -> torch.Tensor:
        """Features of one slice."""
        hidden = self.patches(picture)
        for block in self.vision:
            hidden = block(hidden)
        return hidden.mean(dim=1, keepdim=True)

    def forward(self, pixel_values, input_ids, labels) -> CausalLMOutput:
        seen = sum(self.see(one) for one in pixel_values.unbind(dim=1))
        hidden = self.words(input_ids) + seen
        for block in self.language:
            hidden = block(hidden)
        logits = self.head(hidden)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return CausalLMOutput(loss=loss, logits=logits)


class Pictures(torch.utils.data.Dataset):
    """Random pictures of two slices with a text that depends on them."""

    def __init__(self, count: int, vocabulary: int) -> None:
        random = torch.Generator().manual_seed(7)
        self.pixels = torch.randn(count, 2, 9, 48, generator=random)
        self.texts = torch.randint(0, vocabulary, (count, 12), generator=random)

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        text = self.texts[index]
        return {"pixel_values": self.pixels[index], "input_ids": text, "labels": text.roll(-1)}


def main() -> None:
    data, training = HfArgumentParser(
        (DataArguments, TrainingArguments)
    ).parse_args_into_dataclasses()
    set_seed(training.seed)
    config = TinyVisionConfig()
    model = TinyVisionModel(config)
    trainer = Trainer(model, training, train_dataset=Pictures(data.samples, config.vocabulary))
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    if trainer.is_world_process_zero():
        print("losses:", " ".join(f"{loss:.4f}" for loss in losses))
        if data.loss_file:
            Path(data.loss_file).write_text(json.dumps(losses))


if __name__ == "__main__":
    main()
