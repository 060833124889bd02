"""FSDP is told to wrap the layers of a class that the model doesn't have."""

import sys

import torch
import torch.distributed as dist
from accelerate import FullyShardedDataParallelPlugin
from torch.distributed.fsdp import FullyShardedDataParallel
from transformers import LlamaConfig, LlamaForCausalLM

RANKS = 1
dist.init_process_group("gloo")
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
)
plugin = FullyShardedDataParallelPlugin(
    auto_wrap_policy="transformer_based_wrap",
    transformer_cls_names_to_wrap=[
        "LlamaDecoderLayer" if "--advised" in sys.argv else "LLaMADecoderLayer"
    ],
)
plugin.set_auto_wrap_policy(model)
model = FullyShardedDataParallel(
    model,
    auto_wrap_policy=plugin.auto_wrap_policy,
    device_id=torch.device("cpu"),
    use_orig_params=True,
)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
tokens = torch.ones(2, 4, dtype=torch.long)
model(input_ids=tokens, labels=tokens).loss.backward()
optimizer.step()
dist.destroy_process_group()
