"""A head shares the embedding's weight without saying so, and the model is saved."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

RANKS = 1
config = LlamaConfig(
    vocab_size=32,
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
)
model = LlamaForCausalLM(config)
first, second = model.model.layers
second.mlp.gate_proj.weight = first.mlp.gate_proj.weight
if "--advised" in sys.argv:
    second.mlp.gate_proj.weight = torch.nn.Parameter(first.mlp.gate_proj.weight.detach().clone())
model.save_pretrained("saved")
