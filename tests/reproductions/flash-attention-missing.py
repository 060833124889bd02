"""The model asks for FlashAttention 2, and the package `flash_attn` isn't installed."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

RANKS = 1

attention = "sdpa" if "--advised" in sys.argv else "flash_attention_2"
config = LlamaConfig(
    vocab_size=32,
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    attn_implementation=attention,
)
model = LlamaForCausalLM(config).to(torch.bfloat16)
tokens = torch.arange(8).reshape(1, 8)
model(tokens, labels=tokens).loss.backward()
