"""The Trainer's compute_loss is overridden with the arguments of older transformers."""

import sys
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

RANKS = 1


class Old(Trainer):
    """As it was written up to transformers 4.45."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False) -> Any:
        return super().compute_loss(model, inputs, return_outputs)


class New(Trainer):
    """Takes what else the Trainer passes."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, **more: Any
    ) -> Any:
        return super().compute_loss(model, inputs, return_outputs, **more)


arguments = TrainingArguments(
    output_dir="out",
    max_steps=2,
    use_cpu=True,
    report_to=[],
    save_strategy="no",
    disable_tqdm=True,
)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
)
tokens = torch.arange(8)
data = [{"input_ids": tokens, "labels": tokens}] * 16
maker = New if "--advised" in sys.argv else Old
maker(model=model, args=arguments, train_dataset=data).train()
