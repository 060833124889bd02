"""The data collator pads the inputs, but nobody pads the labels."""

import sys

import torch
from tokenizers import Tokenizer, models
from transformers import (
    DataCollatorForSeq2Seq,
    DataCollatorWithPadding,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

RANKS = 1

words = Tokenizer(models.WordLevel({"<pad>": 0, "a": 1}, unk_token="<pad>"))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>")
maker = DataCollatorForSeq2Seq if "--advised" in sys.argv else DataCollatorWithPadding
samples = [{"input_ids": [1] * n, "labels": [1] * n} for n in (3, 5)]
batch = maker(tokenizer)(samples)
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
model(input_ids=batch["input_ids"], labels=batch["labels"]).loss.backward()
optimizer.step()
