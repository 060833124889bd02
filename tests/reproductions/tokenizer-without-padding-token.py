"""Texts of several lengths are batched by a tokenizer that has no padding token."""

import sys

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

RANKS = 1

words = Tokenizer(models.WordLevel({"<unk>": 0, "</s>": 1, "a": 2, "b": 3}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", eos_token="</s>")
if "--advised" in sys.argv:
    tokenizer.pad_token = tokenizer.eos_token
batch = tokenizer(["a b", "a b a"], padding=True, return_tensors="pt")
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
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(input_ids=batch["input_ids"], labels=batch["input_ids"]).loss.backward()
optimizer.step()
