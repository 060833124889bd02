"""Both FSDP and DeepSpeed are asked to divide the model."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

RANKS = 1
STACKS = ("current",)

arguments = TrainingArguments(
    output_dir="out",
    max_steps=2,
    deepspeed={
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "zero_optimization": {"stage": 1},
    },
    report_to=[],
    save_strategy="no",
    disable_tqdm=True,
    **({} if "--advised" in sys.argv else {"fsdp": "full_shard"}),
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
