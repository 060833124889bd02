"""The best model is to be chosen by a metric that the evaluation doesn't compute."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

RANKS = 1

arguments = TrainingArguments(
    output_dir="out",
    max_steps=1,
    eval_strategy="steps",
    eval_steps=1,
    save_strategy="steps",
    save_steps=1,
    load_best_model_at_end=True,
    metric_for_best_model="loss" if "--advised" in sys.argv else "accuracy",
    use_cpu=True,
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
data = [{"input_ids": tokens, "labels": tokens}] * 8
Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data).train()
