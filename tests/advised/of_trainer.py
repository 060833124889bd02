"""Advice for Hugging Face's Trainer."""

from __future__ import annotations

from typing import Any

import torch
from task import MICRO_BATCH, RATE, STEPS, Net, Task, main, optimizer_of
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Sampler, SequentialSampler
from transformers import Trainer, TrainerCallback, TrainingArguments


class Output(Net):
    """A model in transformers' manner, whose forward takes further arguments."""

    def forward(self, inputs: Tensor, labels: Tensor, **more: Any) -> dict[str, Tensor]:
        """Loss and outputs."""
        outputs = self.second(torch.tanh(self.first(inputs)))
        return {"loss": functional.mse_loss(outputs, labels), "logits": outputs}


class Counting(Output):
    """A model that heeds the number of items, as transformers' own do."""

    def forward(self, inputs: Tensor, labels: Tensor, **more: Any) -> dict[str, Tensor]:
        """The loss of a micro batch is its part of the global batch's."""
        told = super().forward(inputs, labels)
        items = more.get("num_items_in_batch")
        if items is not None:
            told["loss"] = functional.mse_loss(told["logits"], labels, reduction="sum") / items
        return told


class Watched(Trainer):
    """Takes the samples in their order."""

    def _get_train_sampler(self, *_arguments: Any) -> Sampler[int]:
        return SequentialSampler(self.train_dataset)


class Steps(TrainerCallback):
    """Tells each step."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def on_step_end(self, *arguments: Any, model: Any, **_more: Any) -> None:
        """After the optimizer."""
        self.task.stepped(model)


def arguments_of(task: Task, **more: Any) -> TrainingArguments:
    """As the task is."""
    return TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=MICRO_BATCH,
        gradient_accumulation_steps=task.accumulation,
        max_steps=STEPS,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        remove_unused_columns=False,
        ddp_find_unused_parameters=False,
        **more,
    )


def train(task: Task, kind: type[Trainer], model: torch.nn.Module, **more: Any) -> None:
    """Trains with the plain optimizer."""
    trainer = kind(
        model=model,
        args=arguments_of(task, **more),
        train_dataset=task.samples(),
        optimizers=(optimizer_of(model), None),
        callbacks=[Steps(task)],
    )
    trainer.train()


def own_loss(task: Task, way: str) -> None:
    """A compute_loss that is a mean, and takes the number of items."""

    class Own(Watched):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            if way == "refused":
                self.model_accepts_loss_kwargs = False

        def compute_loss(
            self,
            model: Any,
            inputs: Any,
            return_outputs: bool = False,
            num_items_in_batch: Any = None,
        ) -> Any:
            labels = inputs["labels"]
            outputs = model(**inputs)["logits"]
            loss = functional.mse_loss(outputs, labels)
            task.saw(loss)
            if way == "divided" and num_items_in_batch is not None:
                total = functional.mse_loss(outputs, labels, reduction="sum")
                loss = total / num_items_in_batch
                if self.args.average_tokens_across_devices:
                    loss = loss * self.accelerator.num_processes
            if way == "counted" and num_items_in_batch is not None:
                loss = loss / self.current_gradient_accumulation_steps
            return loss

    train(task, Own, Output())


def handed_on(task: Task) -> None:
    """A compute_loss that hands the number on."""

    class Own(Watched):
        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: bool = False, **more: Any
        ) -> Any:
            loss, outputs = super().compute_loss(model, inputs, True, **more)
            task.saw(functional.mse_loss(outputs["logits"], inputs["labels"]))
            return (loss, outputs) if return_outputs else loss

    train(task, Own, Counting())


def forward_takes_it(task: Task, way: str) -> None:
    """A forward with a parameter for the number."""

    class Takes(Net):
        def forward(
            self, inputs: Tensor, labels: Tensor, num_items_in_batch: Any = None, **more: Any
        ) -> dict[str, Tensor]:
            outputs = self.second(torch.tanh(self.first(inputs)))
            loss = functional.mse_loss(outputs, labels)
            task.saw(loss)
            if way == "divided" and num_items_in_batch is not None:
                loss = functional.mse_loss(outputs, labels, reduction="sum") / num_items_in_batch
            return {"loss": loss}

    class Own(Watched):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            if way == "refused":
                self.model_accepts_loss_kwargs = False

    train(task, Own, Takes())


main(
    {
        "own-loss": lambda task: own_loss(task, "ignored"),
        "own-loss-divided": lambda task: own_loss(task, "divided"),
        "own-loss-counted": lambda task: own_loss(task, "counted"),
        "own-loss-refused": lambda task: own_loss(task, "refused"),
        "own-loss-handed-on": handed_on,
        "forward-takes-it": lambda task: forward_takes_it(task, "ignored"),
        "forward-divides": lambda task: forward_takes_it(task, "divided"),
        "forward-refused": lambda task: forward_takes_it(task, "refused"),
    }
)
