"""The script was written for older transformers, where the argument had another name."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

RANKS = 1

name = "eval_strategy" if "--advised" in sys.argv else "evaluation_strategy"
arguments = TrainingArguments(
    output_dir="out",
    max_steps=2,
    use_cpu=True,
    report_to=[],
    save_strategy="no",
    disable_tqdm=True,
    **{name: "no"},
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
