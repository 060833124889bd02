"""The path of the DeepSpeed JSON is relative to another folder than the working directory."""

import json
import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

RANKS = 1

Path("scripts").mkdir()
path = Path("scripts/zero2.json").absolute()
path.write_text(
    json.dumps(
        {
            "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": "auto",
            "zero_optimization": {"stage": 1},
        }
    )
)
arguments = TrainingArguments(
    output_dir="out",
    max_steps=2,
    deepspeed=str(path) if "--advised" in sys.argv else "zero2.json",
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
