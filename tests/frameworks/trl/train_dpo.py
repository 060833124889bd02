"""Preference training with TRL's DPOTrainer, as its users write it, adapters in the code."""

from __future__ import annotations

from datasets import load_dataset
from peft import LoraConfig
from trl import DPOConfig, DPOTrainer, TrlParser


def main() -> None:
    (arguments,) = TrlParser((DPOConfig,)).parse_args_and_config()
    arguments.model_init_kwargs = {"dtype": "float32"}
    trainer = DPOTrainer(
        "model",
        args=arguments,
        train_dataset=load_dataset("preferences", split="train"),
        peft_config=LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
    )
    trainer.train()


if __name__ == "__main__":
    main()
