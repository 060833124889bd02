"""Trains adapters if a flag asks for them, as Qwen's finetune.py does, under ZeRO-3."""

from __future__ import annotations

from dataclasses import dataclass, field

import transformers
from peft import LoraConfig, get_peft_model
from texts import Texts
from transformers import Trainer
from witness import Witness


@dataclass
class ModelArguments:
    model_name_or_path: str | None = field(default="Qwen/Qwen-7B")


@dataclass
class DataArguments:
    data_path: str = field(default="")
    lazy_preprocess: bool = False


@dataclass
class TrainingArguments(transformers.TrainingArguments):
    optim: str = field(default="adamw_torch")
    model_max_length: int = field(default=8192)
    use_lora: bool = False


@dataclass
class LoraArguments:
    lora_r: int = 64
    lora_alpha: int = 16
    lora_dropout: float = 0.05
    lora_target_modules: list[str] = field(
        default_factory=lambda: ["q_proj", "v_proj", "up_proj", "gate_proj"]
    )
    lora_bias: str = "none"
    q_lora: bool = False


def train() -> None:
    parser = transformers.HfArgumentParser(
        (ModelArguments, DataArguments, TrainingArguments, LoraArguments)
    )
    model_args, _, training_args, lora_args = parser.parse_args_into_dataclasses()
    is_chat_model = "chat" in model_args.model_name_or_path.lower()
    config = transformers.AutoConfig.from_pretrained(model_args.model_name_or_path)
    config.use_cache = False
    model = transformers.AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path, config=config
    )
    layers = model.model.layers
    if training_args.use_lora:
        in_full = not (lora_args.q_lora or is_chat_model)
        modules_to_save = ["embed_tokens", "lm_head"] if in_full else None
        lora_config = LoraConfig(
            r=lora_args.lora_r,
            lora_alpha=lora_args.lora_alpha,
            target_modules=lora_args.lora_target_modules,
            lora_dropout=lora_args.lora_dropout,
            bias=lora_args.lora_bias,
            task_type="CAUSAL_LM",
            modules_to_save=modules_to_save,
        )
        model = get_peft_model(model, lora_config)
        if training_args.gradient_checkpointing:
            model.enable_input_require_grads()
    Witness(model, layers[0].self_attn.q_proj)
    texts = Texts(training_args.model_max_length)
    Trainer(model=model, args=training_args, train_dataset=texts).train()


if __name__ == "__main__":
    train()
