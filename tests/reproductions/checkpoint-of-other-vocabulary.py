"""Tokens were added before the first run, but not before its checkpoint is loaded again."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

RANKS = 1


def made() -> LlamaForCausalLM:
    """The model as it is downloaded."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
        )
    )


first = made()
first.resize_token_embeddings(34)
torch.save(first.state_dict(), "checkpoint.pt")

model = made()
if "--advised" in sys.argv:
    model.resize_token_embeddings(34)
model.load_state_dict(torch.load("checkpoint.pt"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
tokens = torch.ones(2, 4, dtype=torch.long)
model(input_ids=tokens, labels=tokens).loss.backward()
optimizer.step()
