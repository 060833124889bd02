"""Freezes and wraps by the arguments' own words, as InternVL's internvl_chat_finetune.py does."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import transformers
from peft import LoraConfig, get_peft_model
from texts import Texts
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
from witness import Witness


@dataclass
class ModelArguments:
    model_name_or_path: str | None = field(default=None)
    freeze_llm: bool = field(default=False)
    unfreeze_lm_head: bool = field(default=False)
    use_llm_lora: int = field(default=0, metadata={"help": "the rank of the adapters"})
    grad_checkpoint: bool = field(default=True)


@dataclass
class DataTrainingArguments:
    max_seq_length: int | None = field(default=2048)
    conv_style: str | None = field(default="internlm2-chat")


class Chat:
    """A language model, to which adapters can be added."""

    def __init__(self, model: Any) -> None:
        self.language_model = model

    def wrap_llm_lora(self, r: int = 128, lora_alpha: int = 256) -> None:
        config = LoraConfig(
            r=r,
            target_modules=["self_attn.q_proj", "self_attn.k_proj", "mlp.down_proj"],
            lora_alpha=lora_alpha,
            task_type="CAUSAL_LM",
        )
        self.language_model = get_peft_model(self.language_model, config)
        self.language_model.enable_input_require_grads()


def main() -> None:
    parser = HfArgumentParser((ModelArguments, DataTrainingArguments, TrainingArguments))
    if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
        model_args, data_args, training_args = parser.parse_json_file(json_file=sys.argv[1])
    else:
        model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    transformers.set_seed(training_args.seed)
    chat = Chat(AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path))
    chat.language_model.config.use_cache = False
    layers = chat.language_model.model.layers
    if model_args.grad_checkpoint:
        chat.language_model.gradient_checkpointing_enable({"use_reentrant": True})

    def _freeze_params(module: Any) -> None:
        for parameter in module.parameters():
            parameter.requires_grad = False

    if model_args.freeze_llm:
        chat.language_model = chat.language_model.eval()
        _freeze_params(chat.language_model)
    if model_args.unfreeze_lm_head:
        chat.language_model.lm_head.requires_grad_(True)
    if model_args.use_llm_lora:
        chat.wrap_llm_lora(r=model_args.use_llm_lora, lora_alpha=2 * model_args.use_llm_lora)
    Witness(chat.language_model, layers[0].self_attn.q_proj)
    texts = Texts(data_args.max_seq_length)
    Trainer(model=chat.language_model, args=training_args, train_dataset=texts).train()


if __name__ == "__main__":
    main()
