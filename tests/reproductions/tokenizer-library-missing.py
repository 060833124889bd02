"""The tokenizer comes as a SentencePiece file alone, and sentencepiece isn't installed."""

import sys
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast, T5Tokenizer

RANKS = 1

if "--advised" in sys.argv:
    Tokenizer(WordLevel({"a": 0, "b": 1}, unk_token="a")).save("tokenizer.json")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file="tokenizer.json")
else:
    Path("spiece.model").write_bytes(b"\n\x05\n\x01a\x15")
    tokenizer = T5Tokenizer.from_pretrained(".")
print(tokenizer("a b").input_ids)
