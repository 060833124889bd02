"""Conversations are to be formatted by a base model's tokenizer, which has no template."""

import sys

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

RANKS = 1

words = Tokenizer(models.WordLevel({"<unk>": 0, "hello": 1, "user": 2}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>")
if "--advised" in sys.argv:
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}"
text = tokenizer.apply_chat_template([{"role": "user", "content": "hello"}], tokenize=False)
tokens = tokenizer(text, return_tensors="pt")["input_ids"]
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
model(input_ids=tokens, labels=tokens).loss.backward()
optimizer.step()
