"""A Trainer whose model changes its ways in the middle of the training, and fails then.

From step `late_from` on, both slices of a picture are seen, so every vision block runs twice; or
the loss is taken over the parameters of the tower itself, which ZeRO-3 has partitioned by then.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import (
    HfArgumentParser,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

from finetune import Pictures, TinyVisionConfig, TinyVisionModel


@dataclass
class LateArguments:
    """What happens when, and where the losses go."""

    late: str = field(default="twice", metadata={"help": "twice, dummy or never"})
    late_from: int = field(default=5, metadata={"help": "after so many steps"})
    buffer: bool = field(default=False, metadata={"help": "the model has a buffer"})
    cut_off: str | None = field(
        default=None, metadata={"help": "pattern of the file that is cut off where it is found"}
    )
    looks: bool = field(default=False, metadata={"help": "look for the newest checkpoint"})
    loss_file: str | None = None


class Late(TinyVisionModel):
    """Sees the second slice from a certain step on."""

    sees_both = False

    def forward(self, pixel_values, input_ids, labels):
        count = 2 if self.sees_both else 1
        return super().forward(pixel_values[:, :count], input_ids, labels)


class Clock(TrainerCallback):
    """Tells the model what time it is."""

    def __init__(self, model: Late, late: LateArguments) -> None:
        self.model, self.late = model, late

    def on_step_begin(self, args, state, control, **kwargs):
        if self.late.late == "twice":
            self.model.sees_both = state.global_step >= self.late.late_from

    def on_save(self, args, state, control, **kwargs):
        """What a full disk or a killed process leaves of the last checkpoint before the failure."""
        if (
            self.late.cut_off
            and state.global_step == self.late.late_from
            and args.process_index == 0
        ):
            for path in Path(args.output_dir).glob(self.late.cut_off):
                path.write_bytes(path.read_bytes()[:-40])


class LateTrainer(Trainer):
    """Adds a term of no weight over the parameters of the tower, where asked."""

    late: LateArguments

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        loss = super().compute_loss(model, inputs, **kwargs)
        if self.late.late == "dummy" and self.state.global_step >= self.late.late_from:
            loss = loss + 0.0 * sum(one.sum() for one in self.model.vision.parameters())
        return loss


def newest_of(folder: str) -> str | None:
    """The checkpoint of the highest number, as many scripts look for it."""
    return get_last_checkpoint(folder) if Path(folder).is_dir() else None


def main() -> None:
    late, training = HfArgumentParser(
        (LateArguments, TrainingArguments)
    ).parse_args_into_dataclasses()
    set_seed(training.seed)
    config = TinyVisionConfig()
    model = Late(config)
    if late.buffer:
        model.register_buffer("seen", torch.zeros(1))
    trainer = LateTrainer(model, training, train_dataset=Pictures(96, config.vocabulary))
    trainer.late = late
    trainer.add_callback(Clock(model, late))
    trainer.train(resume_from_checkpoint=newest_of(training.output_dir) if late.looks else None)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    if trainer.is_world_process_zero() and late.loss_file:
        Path(late.loss_file).write_text(json.dumps(losses))


if __name__ == "__main__":
    main()
