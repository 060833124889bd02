"""Fine-tuning of a small Llama with a large vocabulary, in a process that may not grow for ever."""

from __future__ import annotations

import json
import resource
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import (
    HfArgumentParser,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
    set_seed,
)

VOCABULARY = 16_000


@dataclass
class ScriptArguments:
    """What the script itself takes."""

    room_mib: int | None = None
    model_max_length: int = 128
    loss_file: str | None = None


class Texts(torch.utils.data.Dataset):
    """Random texts of one length."""

    def __init__(self, length: int) -> None:
        random = torch.Generator().manual_seed(7)
        self.texts = torch.randint(0, VOCABULARY, (192, length), generator=random)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.texts[index], "labels": self.texts[index]}


def limit_data(room: int) -> None:
    """Lets the process grow by so many bytes from here."""
    status = Path("/proc/self/status").read_text()
    held = next(line for line in status.splitlines() if line.startswith("VmData"))
    most = int(held.split()[1]) * 1024 + room
    resource.setrlimit(resource.RLIMIT_DATA, (most, resource.RLIM_INFINITY))


def main() -> None:
    own, arguments = HfArgumentParser(
        (ScriptArguments, TrainingArguments)
    ).parse_args_into_dataclasses()
    set_seed(3)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        use_cache=False,
    )
    model = LlamaForCausalLM(config)
    trainer = Trainer(model=model, args=arguments, train_dataset=Texts(own.model_max_length))
    if own.room_mib is not None:
        limit_data(own.room_mib * 2**20)
    trainer.train()
    if own.loss_file and trainer.is_world_process_zero():
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        Path(own.loss_file).write_text(json.dumps(losses))


if __name__ == "__main__":
    main()
