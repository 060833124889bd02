"""A Trainer that is saved in the middle of its second epoch, and resumes there; it tells the order.

Its samples are their numbers, of which the loss has nothing but the sum.
"""

import argparse
import json

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--told")
parser.add_argument("--resume", action="store_true")
told = parser.parse_args()
order = []


class Sum(torch.nn.Module):
    """A weight that every sample moves."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, number):
        """The loss."""
        order.append(number.tolist())
        return {"loss": (self.weight * number).mean()}


class Stop(TrainerCallback):
    """Ends the first training after its checkpoint."""

    def on_save(self, args, state, control, **kwargs):
        """Stops, unless it has resumed."""
        control.should_training_stop = not told.resume


settings = TrainingArguments(
    output_dir="saved",
    per_device_train_batch_size=2,
    num_train_epochs=2,
    save_steps=6,
    report_to=[],
    use_cpu=True,
    optim="sgd",
    seed=1,
)
numbers = [{"number": float(number)} for number in range(16)]
Trainer(Sum(), settings, train_dataset=numbers, callbacks=[Stop()]).train(
    resume_from_checkpoint=told.resume or None
)
if settings.process_index == 0:
    with open(told.told, "w") as file:
        json.dump(order, file)
