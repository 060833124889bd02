"""Compares queries with groups of passages, as FlagEmbedding's encoder-only embedder does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from texts import Texts
from torch import nn
from torch.utils.data import Dataset
from transformers import AutoModel, HfArgumentParser, Trainer, TrainingArguments
from witness import Witness


@dataclass
class AbsEmbedderModelArguments:
    model_name_or_path: str = field(metadata={"help": "where the encoder lies"})
    cache_dir: str | None = field(default=None)


@dataclass
class AbsEmbedderDataArguments:
    train_data: list[str] = field(default_factory=list)
    train_group_size: int = field(default=8)
    query_max_len: int = field(default=32)
    passage_max_len: int = field(default=128)


@dataclass
class AbsEmbedderTrainingArguments(TrainingArguments):
    temperature: float = field(default=0.02)
    negatives_cross_device: bool = field(default=False)


class Groups(Dataset[list[dict[str, torch.Tensor]]]):
    """A query with a number of passages."""

    def __init__(self, arguments: AbsEmbedderDataArguments) -> None:
        self.queries = Texts(arguments.query_max_len, 32)
        self.passages = Texts(arguments.passage_max_len, 32 * arguments.train_group_size)
        self.size = arguments.train_group_size

    def __len__(self) -> int:
        return len(self.queries)

    def __getitem__(self, index: int) -> list[dict[str, torch.Tensor]]:
        own = range(index * self.size, (index + 1) * self.size)
        return [self.queries[index], *(self.passages[number] for number in own)]


def collate(samples: list[list[dict[str, torch.Tensor]]]) -> dict[str, torch.Tensor]:
    """Puts queries together, and passages."""
    return {
        "queries": torch.stack([first["input_ids"] for first, *_ in samples]),
        "passages": torch.stack([text["input_ids"] for _, *rest in samples for text in rest]),
    }


class BiEncoderOnlyEmbedderModel(nn.Module):
    """An encoder, and the loss over a micro batch's queries and passages."""

    def __init__(self, base_model: Any, temperature: float) -> None:
        super().__init__()
        self.model, self.config, self.temperature = base_model, base_model.config, temperature

    def gradient_checkpointing_enable(self, **kwargs: Any) -> None:
        self.model.gradient_checkpointing_enable(**kwargs)

    def encode(self, texts: torch.Tensor) -> torch.Tensor:
        hidden = self.model(input_ids=texts, return_dict=True).last_hidden_state[:, 0]
        return nn.functional.normalize(hidden, dim=-1)

    def forward(self, queries: torch.Tensor, passages: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = self.encode(queries) @ self.encode(passages).T / self.temperature
        group = len(passages) // len(queries)
        target = torch.arange(len(queries), device=scores.device) * group
        return {"loss": nn.functional.cross_entropy(scores, target)}


def main() -> None:
    parser = HfArgumentParser(
        (AbsEmbedderModelArguments, AbsEmbedderDataArguments, AbsEmbedderTrainingArguments)
    )
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    training_args.remove_unused_columns = False
    base = AutoModel.from_pretrained(model_args.model_name_or_path, add_pooling_layer=False)
    model = BiEncoderOnlyEmbedderModel(base, training_args.temperature)
    Witness(model, base.encoder.layer[0].attention.self.query)
    trainer = Trainer(
        model=model, args=training_args, train_dataset=Groups(data_args), data_collator=collate
    )
    trainer.train()


if __name__ == "__main__":
    main()
