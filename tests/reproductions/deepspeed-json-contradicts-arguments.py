"""The DeepSpeed JSON says another micro-batch than the Trainer's arguments."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

RANKS = 1

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": "auto",
    "zero_optimization": {"stage": 1},
}
if "--advised" in sys.argv:
    CONFIG["train_micro_batch_size_per_gpu"] = "auto"

arguments = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=2,
    max_steps=2,
    deepspeed=CONFIG,
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
Trainer(model=model, args=arguments, train_dataset=data).train()
