"""Bucket sizes are "auto", and the model's configuration has no hidden size."""

import sys

import torch
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments


class Config(PretrainedConfig):
    """A configuration that calls its width by another name."""

    model_type = "own"

    def __init__(self, width: int = 8, **rest: object) -> None:
        self.width = width
        super().__init__(**rest)


class Model(PreTrainedModel):
    """One layer, with its loss."""

    config_class = Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.layer = torch.nn.Linear(config.width, config.width)
        self.post_init()

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """The loss."""
        return {"loss": self.layer(x).pow(2).mean()}


ZERO = {"stage": 1, "reduce_bucket_size": "auto"}
if "--advised" in sys.argv:
    ZERO["reduce_bucket_size"] = 500_000
arguments = TrainingArguments(
    output_dir="out",
    max_steps=2,
    deepspeed={
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "fp16": {"enabled": "auto"},
        "zero_optimization": ZERO,
    },
    report_to=[],
    save_strategy="no",
    disable_tqdm=True,
)
data = [{"x": torch.ones(8)}] * 64
Trainer(model=Model(Config()), args=arguments, train_dataset=data).train()
