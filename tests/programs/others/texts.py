"""Random texts, in place of a data set and its tokenizer."""

from __future__ import annotations

import torch
from torch.utils.data import Dataset


class Texts(Dataset[dict[str, torch.Tensor]]):
    """Texts of one length."""

    def __init__(self, length: int, count: int = 64) -> None:
        random = torch.Generator().manual_seed(7)
        self.texts = torch.randint(0, 500, (count, length), generator=random)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        text = self.texts[index]
        return {"input_ids": text, "labels": text, "attention_mask": torch.ones_like(text)}
