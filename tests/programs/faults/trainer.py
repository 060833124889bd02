"""Fine-tunes with the Trainer of transformers, and goes on from its newest complete checkpoint.

    trainer.py FOLDER

The losses are the same on 1, 2 and 4 ranks; FOLDER.losses has those of each step.
"""

import glob
import json
import os
import sys

import marks
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

folder = sys.argv[1]
marks.come("imports")


class Model(torch.nn.Module):
    """The smallest that the Trainer takes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.linear = torch.nn.Linear(8, 1)

    def forward(self, x, labels):
        """Loss and output."""
        output = self.linear(x).squeeze(-1)
        return {"loss": (output - labels).square().mean(), "logits": output}


class Marks(TrainerCallback):
    """Says which moment has come, and keeps the losses."""

    def on_step_begin(self, _args, state, _control, **_kwargs):
        """Called by the Trainer."""
        marks.come("steps", 0.05)
        marks.fail_once(state.global_step)

    def on_prediction_step(self, _args, _state, _control, **_kwargs):
        """Called by the Trainer."""
        marks.come("evaluation")

    def on_log(self, _args, state, _control, logs=None, **_kwargs):
        """Called by the Trainer."""
        if state.is_world_process_zero and "loss" in logs:
            with open(f"{folder}.losses", "a") as file:
                print(json.dumps({"step": state.global_step, "loss": logs["loss"]}), file=file)


class Saving(Trainer):
    """Takes its time between the model and the optimizer."""

    def _save_optimizer_and_scheduler(self, output_dir):
        marks.come("saving")
        super()._save_optimizer_and_scheduler(output_dir)


generator = torch.Generator().manual_seed(7)
data = [
    {"x": torch.randn(8, generator=generator), "labels": torch.randn((), generator=generator)}
    for _ in range(32)
]
arguments = TrainingArguments(
    output_dir=folder,
    per_device_train_batch_size=4 // marks.WORLD,
    max_steps=8,
    logging_steps=1,
    eval_strategy="steps",
    eval_steps=5,
    save_steps=2,
    learning_rate=0.05,
    use_cpu=True,
    ddp_backend="gloo" if "MASTER_ADDR" in os.environ else None,
    report_to=[],
    disable_tqdm=True,
)
trainer = Saving(Model(), arguments, train_dataset=data, eval_dataset=data[:4], callbacks=[Marks()])
whole = [os.path.dirname(one) for one in glob.glob(f"{folder}/checkpoint-*/trainer_state.json")]
trainer.train(
    resume_from_checkpoint=max(whole, key=lambda one: int(one.rpartition("-")[2]), default=None)
)
marks.come("teardown")
print(f"rank {marks.RANK} has trained", flush=True)
