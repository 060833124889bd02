"""A Trainer that may evaluate before it trains; rank 0 writes each rank's weight at the end."""

import argparse
import json

import torch
from transformers import Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--told")
parser.add_argument("--first", action="store_true", help="evaluate before the training")
parser.add_argument("--unmarked", action="store_true", help="as the entry advises")
told = parser.parse_args()


class Product(torch.nn.Module):
    """A weight that every sample moves."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, number):
        """The loss."""
        return {"loss": (self.weight * number).mean()}


settings = TrainingArguments(
    output_dir="saved",
    per_device_train_batch_size=2,
    max_steps=4,
    report_to=[],
    use_cpu=True,
    optim="sgd",
    learning_rate=0.1,
    max_grad_norm=0.0,
    seed=1,
)
numbers = [{"number": float(number)} for number in range(16)]
trainer = Trainer(Product(), settings, train_dataset=numbers, eval_dataset=numbers)
if told.first:
    trainer.evaluate()
if told.unmarked:
    trainer.model._is_accelerate_prepared = False
trainer.train()
weights = [torch.zeros(1) for _ in range(settings.world_size)]
torch.distributed.all_gather(weights, trainer.model.weight.detach())
if settings.process_index == 0:
    with open(told.told, "w") as file:
        json.dump([float(weight) for weight in weights], file)
