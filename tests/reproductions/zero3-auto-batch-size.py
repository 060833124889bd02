"""The Trainer is to find the batch size by itself while ZeRO-3 holds the parameters."""

import sys

from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

RANKS = 1
arguments = TrainingArguments(
    "output",
    auto_find_batch_size="--advised" not in sys.argv,
    per_device_train_batch_size=2,
    max_steps=2,
    report_to=[],
    deepspeed={
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_clipping": 1.0,
        "optimizer": {"type": "Adam", "params": {"torch_adam": True}},
        "zero_optimization": {"stage": 3},
    },
)
config = LlamaConfig(
    vocab_size=32,
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=2,
)
tokens = {"input_ids": [1, 2, 3], "labels": [1, 2, 3]}
Trainer(LlamaForCausalLM(config), arguments, train_dataset=[tokens] * 8).train()
