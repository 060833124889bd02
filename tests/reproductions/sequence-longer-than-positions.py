"""A text of more tokens than the encoder has positions."""

import sys

import torch
from transformers import BertConfig, BertModel

RANKS = 1

model = BertModel(
    BertConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=16,
    )
)
tokens = torch.arange(30).unsqueeze(0)
if "--advised" in sys.argv:
    tokens = tokens[:, :16]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(input_ids=tokens).pooler_output.sum().backward()
optimizer.step()
