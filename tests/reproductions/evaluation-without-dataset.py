"""Evaluation is asked for, and the Trainer gets training data only."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

RANKS = 1

arguments = TrainingArguments(
    output_dir="out",
    max_steps=2,
    eval_strategy="no" if "--advised" in sys.argv else "steps",
    eval_steps=1,
    use_cpu=True,
    save_strategy="no",
    report_to=[],
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
Trainer(model=model, args=arguments, train_dataset=data).train()
