"""The samples have no labels, so the model computes no loss."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

RANKS = 1

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
sample = {"input_ids": torch.arange(8)}
if "--advised" in sys.argv:
    sample["labels"] = sample["input_ids"]
Trainer(model=model, args=arguments, train_dataset=[sample] * 16).train()
