"""The Trainer is told to resume in a folder that holds no checkpoint yet."""

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
tokens = torch.ones(4, dtype=torch.long)
arguments = TrainingArguments(
    output_dir="out", use_cpu=True, max_steps=1, save_strategy="no", report_to=[]
)
trainer = Trainer(model, arguments, train_dataset=[{"input_ids": tokens, "labels": tokens}] * 8)
advised = "--advised" in sys.argv
trainer.train(resume_from_checkpoint=None if advised else True)
