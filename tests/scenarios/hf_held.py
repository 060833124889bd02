"""As hf_lora.py, but it waits at its third step until a file is there, as a long step would."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from hf_lora import Texts, tiny_llama
from transformers import HfArgumentParser, Trainer, TrainerCallback, TrainingArguments, set_seed


@dataclass
class Output:
    """Where the losses go, and where it is told to go on."""

    loss_file: str | None = None
    marks: str = "."


class Held(TrainerCallback):
    """Waits in the third step."""

    def __init__(self, marks: Path) -> None:
        self.marks = marks

    def on_step_end(self, args, state, control, **kwargs) -> None:
        if state.global_step == 3:
            (self.marks / f"held-{os.environ.get('RANK', '0')}").touch()
            while not (self.marks / "go").exists():
                time.sleep(0.02)


def main() -> None:
    output, training = HfArgumentParser((Output, TrainingArguments)).parse_args_into_dataclasses()
    set_seed(training.seed)
    held = Held(Path(output.marks))
    trainer = Trainer(tiny_llama(), training, train_dataset=Texts(), callbacks=[held])
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    if trainer.is_world_process_zero() and output.loss_file:
        Path(output.loss_file).write_text(json.dumps(losses))


if __name__ == "__main__":
    main()
