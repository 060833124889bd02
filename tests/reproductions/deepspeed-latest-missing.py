"""A checkpoint of the Trainer and DeepSpeed was copied without its file `latest`."""

import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

RANKS = 1
CONFIG = {
    "train_micro_batch_size_per_gpu": "auto",
    "train_batch_size": "auto",
    "gradient_accumulation_steps": "auto",
    "zero_optimization": {"stage": 1},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "torch_adam": True}},
}


def trainer(steps: int) -> Trainer:
    """A new run of so many steps, which saves after each."""
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
        max_steps=steps,
        save_steps=1,
        report_to=[],
        use_cpu=True,
        deepspeed=CONFIG,
    )
    tokens = torch.ones(4, dtype=torch.long)
    data = [{"input_ids": tokens, "labels": tokens}] * 32
    return Trainer(model, arguments, train_dataset=data)


trainer(1).train()
if "--advised" not in sys.argv:
    Path("out/checkpoint-1/latest").unlink()
trainer(2).train(resume_from_checkpoint="out/checkpoint-1")
