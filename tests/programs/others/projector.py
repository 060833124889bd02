"""Trains the projector between a vision tower and a language model, as LLaVA's train.py does."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import transformers
from texts import Texts
from torch.utils.data import Dataset
from transformers import LlavaForConditionalGeneration, Trainer
from witness import Witness

IMAGE = 510


@dataclass
class ModelArguments:
    model_name_or_path: str | None = field(default="facebook/opt-125m")
    freeze_backbone: bool = field(default=False)
    tune_mm_mlp_adapter: bool = field(default=False)
    vision_tower: str | None = field(default=None)


@dataclass
class DataArguments:
    data_path: str | None = field(default=None)
    lazy_preprocess: bool = False
    image_folder: str | None = field(default=None)


@dataclass
class TrainingArguments(transformers.TrainingArguments):
    optim: str = field(default="adamw_torch")
    remove_unused_columns: bool = field(default=False)
    freeze_mm_mlp_adapter: bool = field(default=False)
    model_max_length: int = field(default=512)


class Pictures(Dataset[dict[str, torch.Tensor]]):
    """Texts that begin with a picture of 4 patches."""

    def __init__(self, length: int) -> None:
        self.texts = Texts(length)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        sample = {name: value.clone() for name, value in self.texts[index].items()}
        sample["input_ids"][:4] = IMAGE
        sample["labels"][:4] = -100
        return {**sample, "pixel_values": torch.ones(3, 28, 28)}


def train() -> None:
    parser = transformers.HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, _, training_args = parser.parse_args_into_dataclasses()
    model = LlavaForConditionalGeneration.from_pretrained(
        model_args.model_name_or_path,
        dtype=(torch.bfloat16 if training_args.bf16 else None),
    )
    model.config.use_cache = False
    if model_args.freeze_backbone:
        model.model.language_model.requires_grad_(False)
    if training_args.gradient_checkpointing:
        model.enable_input_require_grads()
    model.model.vision_tower.requires_grad_(False)
    if model_args.tune_mm_mlp_adapter:
        model.requires_grad_(False)
        for parameter in model.model.multi_modal_projector.parameters():
            parameter.requires_grad = True
    Witness(model, model.model.language_model.layers[0].self_attn.q_proj)
    pictures = Pictures(training_args.model_max_length)
    Trainer(model=model, args=training_args, train_dataset=pictures).train()


if __name__ == "__main__":
    train()
