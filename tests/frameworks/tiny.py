"""Tiny random models, a tiny tokenizer and a few samples, for `prepare.py` scripts; no download.

Imported in a framework's own environment, as `from frameworks.tiny import ...`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

SUBJECTS = ("the cat", "a dog", "my friend", "the tall tree", "our teacher", "the old ship")
VERBS = ("likes", "sees", "draws", "finds", "waits for", "sings about")
OBJECTS = ("the moon", "a red house", "small boats", "cold rain", "good bread", "the long road")

SENTENCES = tuple(
    f"{subject} {verb} {thing}." for subject in SUBJECTS for verb in VERBS for thing in OBJECTS
)

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def save_tokenizer(folder: Path, words: Iterable[str] = SENTENCES) -> Any:
    """A byte-level BPE of a few hundred tokens with Qwen2's special tokens and chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.train_from_iterator(
        words,
        trainers.BpeTrainer(
            vocab_size=384,
            special_tokens=list(SPECIAL),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=512,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    return tokenizer


def save_qwen2(folder: Path, model: Any = None, **changed: Any) -> None:
    """A Qwen2 of two layers with random weights, always the same ones, and its tokenizer.

    The model is a class that is made of Qwen2's, or that itself.
    """
    import torch
    from transformers import Qwen2ForCausalLM

    model = model or Qwen2ForCausalLM
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = save_tokenizer(folder)
    torch.manual_seed(0)
    config = model.config_class(
        **{
            "vocab_size": 512,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 512,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": None,
            "tie_word_embeddings": False,
            **changed,
        }
    )
    model(config).save_pretrained(folder)


def save_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes a file of JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def conversations(count: int = 64) -> list[dict[str, Any]]:
    """Questions with answers, as `messages`."""
    return [
        {
            "messages": [
                {"role": "user", "content": f"what of {SENTENCES[(7 * number) % 216]}"},
                {"role": "assistant", "content": SENTENCES[(11 * number + 3) % 216]},
            ]
        }
        for number in range(count)
    ]


def preferences(count: int = 64) -> list[dict[str, Any]]:
    """Questions with a chosen and a rejected answer, as three texts."""
    return [
        {
            "prompt": f"what of {SENTENCES[(7 * number) % 216]}",
            "chosen": SENTENCES[(11 * number + 3) % 216],
            "rejected": SENTENCES[(13 * number + 5) % 216],
        }
        for number in range(count)
    ]
