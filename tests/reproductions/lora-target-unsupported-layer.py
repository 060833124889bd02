"""A name of the modules to adapt is also that of a layer that LoRA has no form for."""

import sys

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

RANKS = 1

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
names = ["q_proj", "v_proj"] if "--advised" in sys.argv else ["q_proj", "mlp"]
model = get_peft_model(model, LoraConfig(r=2, target_modules=names))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
tokens = torch.arange(8)[None]
model(input_ids=tokens, labels=tokens).loss.backward()
optimizer.step()
