"""A model is loaded with a device_map while ZeRO-3 is to place its parameters."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.integrations import HfDeepSpeedConfig

RANKS = 1
config = LlamaConfig(
    vocab_size=32,
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=2,
)
LlamaForCausalLM(config).save_pretrained("model")
torch.distributed.init_process_group("gloo")
keep = HfDeepSpeedConfig({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}})
options = {} if "--advised" in sys.argv else {"device_map": "auto"}
LlamaForCausalLM.from_pretrained("model", **options)
