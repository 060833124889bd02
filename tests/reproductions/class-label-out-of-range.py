"""The classes in the data are counted from 1, the model's from 0."""

import sys

import torch
from transformers import LlamaConfig, LlamaForSequenceClassification

RANKS = 1

config = LlamaConfig(
    vocab_size=32,
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_labels=3,
    pad_token_id=0,
)
model = LlamaForSequenceClassification(config)
labels = torch.tensor([1, 2, 3])
if "--advised" in sys.argv:
    labels = labels - 1
tokens = torch.randint(1, 32, (3, 8))
model(tokens, labels=labels).loss.backward()
