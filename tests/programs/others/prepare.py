"""Saves the tiny models that the scripts load: a Llama, a BERT, a LLaVA, with random weights."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import (
    BertConfig,
    BertModel,
    CLIPVisionConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaConfig,
    LlavaForConditionalGeneration,
)

TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
}


def main(folder: Path) -> None:
    torch.manual_seed(0)
    llama = LlamaConfig(**TEXT, vocab_size=32_000, num_key_value_heads=2)
    LlamaForCausalLM(llama).save_pretrained(folder / "llama")
    bert = BertConfig(**TEXT, vocab_size=512)
    BertModel(bert, add_pooling_layer=False).save_pretrained(folder / "bert")
    tower = CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=28,
        patch_size=14,
    )
    text = LlamaConfig(**TEXT, vocab_size=512, num_key_value_heads=2)
    llava = LlavaConfig(vision_config=tower, text_config=text, image_token_index=510)
    LlavaForConditionalGeneration(llava).save_pretrained(folder / "llava")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
