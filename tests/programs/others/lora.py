"""Trains adapters of peft, whose targets are a dataclass's default, as FastChat's train_lora.py."""

from __future__ import annotations

from dataclasses import dataclass, field

import transformers
from full import DataArguments, ModelArguments, TrainingArguments
from peft import LoraConfig, get_peft_model
from texts import Texts
from transformers import Trainer
from witness import Witness


@dataclass
class LoraArguments:
    lora_r: int = 8
    lora_alpha: int = 16
    lora_dropout: float = 0.05
    lora_target_modules: list[str] = field(default_factory=lambda: ["q_proj", "v_proj"])
    lora_bias: str = "none"
    q_lora: bool = False


def train() -> None:
    parser = transformers.HfArgumentParser(
        (ModelArguments, DataArguments, TrainingArguments, LoraArguments)
    )
    model_args, _, training_args, lora_args = parser.parse_args_into_dataclasses()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path, cache_dir=training_args.cache_dir
    )
    lora_config = LoraConfig(
        r=lora_args.lora_r,
        lora_alpha=lora_args.lora_alpha,
        target_modules=lora_args.lora_target_modules,
        lora_dropout=lora_args.lora_dropout,
        bias=lora_args.lora_bias,
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(model, lora_config)
    if training_args.gradient_checkpointing:
        model.enable_input_require_grads()
    Witness(model, model.base_model.model.model.layers[0].self_attn.q_proj)
    model.config.use_cache = False
    texts = Texts(training_args.model_max_length)
    Trainer(model=model, args=training_args, train_dataset=texts).train()


if __name__ == "__main__":
    train()
