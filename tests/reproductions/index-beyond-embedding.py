"""A token is added to the tokenizer, and the model's embedding isn't made larger."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

RANKS = 1

config = LlamaConfig(
    vocab_size=32,
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
)
model = LlamaForCausalLM(config)
padding = config.vocab_size
if "--advised" in sys.argv:
    model.resize_token_embeddings(config.vocab_size + 1)
tokens = torch.tensor([[1, 2, 3, padding]])
model(tokens, labels=tokens).loss.backward()
