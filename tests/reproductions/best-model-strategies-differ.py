"""The best checkpoint is to be loaded at the end, but evaluation and saving have other rhythms."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

RANKS = 1

saving = {"save_strategy": "epoch"}
if "--advised" in sys.argv:
    saving = {"save_strategy": "steps", "save_steps": 2}
arguments = TrainingArguments(
    output_dir="out",
    max_steps=2,
    eval_strategy="steps",
    eval_steps=1,
    load_best_model_at_end=True,
    use_cpu=True,
    report_to=[],
    disable_tqdm=True,
    **saving,
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
Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data).train()
