"""A tiny decoder and a tiny BERT with random weights, and queries with passages, in a folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from frameworks.tiny import SENTENCES, save_lines, save_qwen2, save_tokenizer
from transformers import BertConfig, BertModel


def save_bert(folder: Path) -> None:
    """An encoder of two layers, always the same one, and its tokenizer."""
    save_tokenizer(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
    BertModel(BertConfig(vocab_size=512, num_hidden_layers=2, **sizes)).save_pretrained(folder)


def queries(count: int = 64) -> list[dict[str, Any]]:
    """Queries, each with a passage that answers it and three that don't."""
    return [
        {
            "query": f"what of {SENTENCES[(7 * number) % 216]}",
            "pos": [SENTENCES[(11 * number + 3) % 216]],
            "neg": [SENTENCES[(13 * number + step) % 216] for step in (5, 60, 110)],
        }
        for number in range(count)
    ]


def main() -> None:
    folder = Path(sys.argv[1])
    save_qwen2(folder / "decoder")
    save_bert(folder / "encoder")
    save_lines(folder / "queries.jsonl", queries())
    stage2 = '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
    stage2 += '"gradient_clipping": "auto", "zero_optimization": {"stage": 2}}\n'
    (folder / "zero2.json").write_text(stage2)


if __name__ == "__main__":
    main()
