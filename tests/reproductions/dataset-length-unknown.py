"""The training data is a stream, and nobody says how many steps to train."""

import sys
from collections.abc import Iterator

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

RANKS = 1


class Stream(torch.utils.data.IterableDataset):
    """Samples without an end."""

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        while True:
            yield {"input_ids": torch.arange(8), "labels": torch.arange(8)}


arguments = TrainingArguments(
    output_dir="out",
    use_cpu=True,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    **({"max_steps": 2} if "--advised" in sys.argv else {}),
)
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
Trainer(model=model, args=arguments, train_dataset=Stream()).train()
