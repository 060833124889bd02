"""An evaluation without a training, on the Trainer with a DeepSpeed file of stage 2."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

RANKS = 1

STAGE_2 = {
    "train_micro_batch_size_per_gpu": "auto",
    "train_batch_size": "auto",
    "zero_optimization": {"stage": 2},
}
arguments = TrainingArguments(
    output_dir="out",
    deepspeed=None if "--advised" in sys.argv else STAGE_2,
    per_device_eval_batch_size=2,
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
data = [{"input_ids": tokens, "labels": tokens}] * 4
Trainer(model=model, args=arguments, eval_dataset=data).evaluate()
