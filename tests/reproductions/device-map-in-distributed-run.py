"""Every rank loads a model spread by a device map, and there are two ranks."""

import os
import sys

import torch
from accelerate import Accelerator
from transformers import LlamaConfig, LlamaForCausalLM

LlamaForCausalLM(
    LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
).save_pretrained(folder := f"model{os.environ['RANK']}")

accelerator = Accelerator(cpu=True)
spread = {"device_map": {"model": "cpu", "lm_head": "disk"}, "offload_folder": "spill"}
if "--advised" in sys.argv:
    spread = {}
model = LlamaForCausalLM.from_pretrained(folder, **spread)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
model, optimizer = accelerator.prepare(model, optimizer)
tokens = torch.arange(8)[None]
accelerator.backward(model(input_ids=tokens, labels=tokens).loss)
optimizer.step()
accelerator.end_training()
