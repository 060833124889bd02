"""Trains all of a language model with the Trainer, as FastChat's train.py does."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass, field

import transformers
from texts import Texts
from transformers import Trainer
from witness import Witness


@dataclass
class ModelArguments:
    model_name_or_path: str | None = field(default="facebook/opt-125m")
    trust_remote_code: bool = field(default=False)


@dataclass
class DataArguments:
    data_path: str = field(default="")
    lazy_preprocess: bool = False


@dataclass
class TrainingArguments(transformers.TrainingArguments):
    cache_dir: str | None = field(default=None)
    optim: str = field(default="adamw_torch")
    model_max_length: int = field(default=512, metadata={"help": "tokens of a text at most"})


def train() -> None:
    parser = transformers.HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, _, training_args = parser.parse_args_into_dataclasses()
    config = transformers.AutoConfig.from_pretrained(
        model_args.model_name_or_path, trust_remote_code=model_args.trust_remote_code
    )
    config.use_cache = False
    model = transformers.AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path, config=config, cache_dir=training_args.cache_dir
    )
    Witness(model, model.model.layers[0].self_attn.q_proj)
    texts = Texts(training_args.model_max_length)
    trainer = Trainer(model=model, args=training_args, train_dataset=texts)
    if list(pathlib.Path(training_args.output_dir).glob("checkpoint-*")):
        trainer.train(resume_from_checkpoint=True)
    else:
        trainer.train()
    trainer.save_state()


if __name__ == "__main__":
    train()
