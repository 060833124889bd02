"""Compares chosen with rejected answers against a frozen copy: alignment-handbook's dpo.py."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from texts import Texts
from torch import nn
from torch.utils.data import Dataset
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
from witness import Witness


@dataclass
class ModelConfig:
    model_name_or_path: str | None = field(default=None)


@dataclass
class DPOConfig(TrainingArguments):
    beta: float = field(default=0.1)
    max_length: int = field(default=1024)


class Pairs(Dataset[dict[str, torch.Tensor]]):
    """Two texts each."""

    def __init__(self, length: int) -> None:
        self.texts = Texts(length)

    def __len__(self) -> int:
        return len(self.texts) // 2

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        pair = (self.texts[2 * index], self.texts[2 * index + 1])
        return {"input_ids": torch.stack([text["input_ids"] for text in pair])}


def collate(samples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """All chosen texts, then all rejected."""
    pairs = torch.stack([sample["input_ids"] for sample in samples])
    return {"input_ids": pairs.transpose(0, 1).flatten(0, 1)}


class DPOTrainer(Trainer):
    """A Trainer with a second, frozen model."""

    def __init__(self, model: nn.Module, args: DPOConfig, **kwargs: Any) -> None:
        self.beta = args.beta
        super().__init__(model=model, args=args, **kwargs)
        self.ref_model = copy.deepcopy(model).requires_grad_(False).eval()
        Witness(model, model.model.layers[0].self_attn.q_proj)

    def logps(self, model: nn.Module, words: torch.Tensor) -> torch.Tensor:
        logits = model(input_ids=words).logits[:, :-1]
        each = torch.gather(logits.log_softmax(-1), 2, words[:, 1:, None])
        return each.squeeze(-1).sum(-1)

    def compute_loss(self, model: nn.Module, inputs: Any, *_args: Any, **_kwargs: Any) -> Any:
        words = inputs["input_ids"]
        with torch.no_grad():
            kept = self.logps(self.ref_model, words)
        gained = self.logps(model, words) - kept
        chosen, rejected = gained.chunk(2)
        return -nn.functional.logsigmoid(self.beta * (chosen - rejected)).mean()


def main() -> None:
    model_args, training_args = HfArgumentParser(
        (ModelConfig, DPOConfig)
    ).parse_args_into_dataclasses()
    training_args.remove_unused_columns = False
    model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path)
    model.config.use_cache = False
    trainer = DPOTrainer(
        model, training_args, train_dataset=Pairs(training_args.max_length), data_collator=collate
    )
    trainer.train()


if __name__ == "__main__":
    main()
