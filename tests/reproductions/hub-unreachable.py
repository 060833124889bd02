"""The model is named as on the Hub, and the machine can't reach it."""

import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

RANKS = 1
FRESH = True

name = "somebody/their-model"
if "--advised" in sys.argv:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=32, num_hidden_layers=1, **sizes)).save_pretrained(".")
    name = "."
AutoModelForCausalLM.from_pretrained(name)
