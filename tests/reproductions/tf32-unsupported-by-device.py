"""The Trainer is asked for TF32 where no GPU has it."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

RANKS = 1
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
)
arguments = TrainingArguments(
    output_dir="out",
    use_cpu=True,
    tf32=None if "--advised" in sys.argv else True,
    max_steps=1,
    save_strategy="no",
    report_to=[],
)
tokens = torch.ones(4, dtype=torch.long)
data = [{"input_ids": tokens, "labels": tokens}] * 8
Trainer(model, arguments, train_dataset=data).train()
