"""As hf_lora.py, but no flag tells of the adapters: the script always adds them."""

from __future__ import annotations

from dataclasses import dataclass

from hf_lora import ScriptArguments, train
from transformers import HfArgumentParser, TrainingArguments


@dataclass
class Output:
    """Where the losses go."""

    loss_file: str | None = None


def main() -> None:
    output, training = HfArgumentParser((Output, TrainingArguments)).parse_args_into_dataclasses()
    train(ScriptArguments(use_lora=True, loss_file=output.loss_file), training)


if __name__ == "__main__":
    main()
