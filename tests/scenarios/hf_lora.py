"""LoRA fine-tuning of a small Llama with Hugging Face's Trainer and peft."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    HfArgumentParser,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
    set_seed,
)


@dataclass
class ScriptArguments:
    """What the script itself takes."""

    use_lora: bool = False
    lora_r: int = 8
    loss_file: str | None = None


class Texts(torch.utils.data.Dataset):
    """Random texts of one length."""

    def __init__(self, count: int = 96, length: int = 16) -> None:
        random = torch.Generator().manual_seed(7)
        self.texts = torch.randint(0, 128, (count, length), generator=random)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.texts[index], "labels": self.texts[index]}


def tiny_llama() -> LlamaForCausalLM:
    """A Llama of two layers."""
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


def adapted(model: LlamaForCausalLM, rank: int) -> torch.nn.Module:
    """The model with adapters on all attention projections."""
    targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
    config = LoraConfig(r=rank, lora_alpha=32, target_modules=targets, lora_dropout=0.0)
    return get_peft_model(model, config)


def train(script: ScriptArguments, training: TrainingArguments) -> None:
    """Trains and writes the losses."""
    set_seed(training.seed)
    model = tiny_llama()
    if script.use_lora:
        model = adapted(model, script.lora_r)
        if training.gradient_checkpointing:
            model.enable_input_require_grads()
    trainer = Trainer(model, training, train_dataset=Texts())
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    if trainer.is_world_process_zero() and script.loss_file:
        Path(script.loss_file).write_text(json.dumps(losses))


def main() -> None:
    parser = HfArgumentParser((ScriptArguments, TrainingArguments))
    train(*parser.parse_args_into_dataclasses())


if __name__ == "__main__":
    main()
