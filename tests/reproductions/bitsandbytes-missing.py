"""The model is to be loaded in 4 bits, and bitsandbytes isn't installed."""

import sys

from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

RANKS = 1

sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
LlamaForCausalLM(LlamaConfig(vocab_size=32, num_hidden_layers=1, **sizes)).save_pretrained(".")
four_bits = None if "--advised" in sys.argv else BitsAndBytesConfig(load_in_4bit=True)
AutoModelForCausalLM.from_pretrained(".", quantization_config=four_bits)
