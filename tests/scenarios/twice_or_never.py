"""Loops that do something twice, or not at all; with `--right` each does it once.

`--rate` makes up for gradients that are as many times too small or too large.
What has been trained, and the rates of a schedule, are printed at the end.
"""

import argparse
import os

import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument(
    "loop", choices=["accelerate", "steps", "trainer", "deepspeed", "ddp", "epochs", "schedule"]
)
parser.add_argument("--right", action="store_true")
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--rate", type=float, default=0.1)
arguments = parser.parse_args()
torch.manual_seed(0)
data, model = TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=arguments.rate)
accumulation, rates = 2, []

if arguments.loop == "accelerate":
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulation)
    sampler = None if arguments.right else DistributedSampler(data)
    loader = DataLoader(data, batch_size=arguments.batch, sampler=sampler)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for inputs, wanted in loader:
        with accelerator.accumulate(model):
            loss = mse_loss(model(inputs), wanted)
            if not arguments.right:
                loss = loss / accumulation
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
elif arguments.loop == "steps":
    from accelerate import Accelerator

    # In the clean twin nothing is accumulated.
    accelerator = Accelerator(
        cpu=True, gradient_accumulation_steps=1 if arguments.right else accumulation
    )
    model, optimizer, loader = accelerator.prepare(
        model, optimizer, DataLoader(data, batch_size=arguments.batch)
    )
    for inputs, wanted in loader:
        accelerator.backward(mse_loss(model(inputs), wanted))
        optimizer.step()
        optimizer.zero_grad()
elif arguments.loop == "trainer":
    from transformers import Trainer, TrainingArguments

    class Wrapped(torch.nn.Module):
        """Takes what a Trainer passes to models that divide their loss by it."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = model

        def forward(
            self, inputs: torch.Tensor, labels: object = None, **kwargs: object
        ) -> torch.Tensor:
            return self.layer(inputs)

    class Own(Trainer):
        """A mean, which only the correct form divides."""

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            loss = mse_loss(model(inputs["inputs"]), inputs["labels"])
            if arguments.right:
                loss = loss / accumulation
            return (loss, {}) if return_outputs else loss

    Own(
        Wrapped(),
        TrainingArguments(
            "out",
            max_steps=4,
            per_device_train_batch_size=arguments.batch,
            gradient_accumulation_steps=accumulation,
            max_grad_norm=0,
            report_to="none",
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            lr_scheduler_type="constant",
        ),
        train_dataset=[{"inputs": one, "labels": other} for one, other in data],
        optimizers=(optimizer, None),
    ).train()
elif arguments.loop == "deepspeed":
    import deepspeed

    config = {
        "train_micro_batch_size_per_gpu": arguments.batch,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": 0,
    }
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    sampler = DistributedSampler(data)
    for inputs, wanted in DataLoader(data, batch_size=arguments.batch, sampler=sampler):
        loss = mse_loss(engine(inputs), wanted)
        if not arguments.right:
            loss = loss / accumulation
        engine.backward(loss)
        engine.step()
elif arguments.loop == "schedule":
    from accelerate import Accelerator
    from torch.optim.lr_scheduler import PolynomialLR

    accelerator = Accelerator(cpu=True)
    model, optimizer, loader = accelerator.prepare(
        model, optimizer, DataLoader(data, batch_size=arguments.batch)
    )
    epochs = 4
    steps = epochs * len(loader) * (accelerator.num_processes if arguments.right else 1)
    schedule = accelerator.prepare(PolynomialLR(optimizer, steps))
    for _ in range(epochs):
        for inputs, wanted in loader:
            rates.append(schedule.get_last_lr()[0])
            accelerator.backward(mse_loss(model(inputs), wanted))
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
else:
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
    is_divided = arguments.right or arguments.loop == "epochs"
    sampler = DistributedSampler(data) if is_divided else None
    for epoch in range(3 if arguments.loop == "epochs" else 1):
        if arguments.right:
            sampler.set_epoch(epoch)
        for inputs, wanted in DataLoader(data, batch_size=arguments.batch, sampler=sampler):
            mse_loss(model(inputs), wanted).backward()
            optimizer.step()
            optimizer.zero_grad()
if os.environ["RANK"] == "0":
    trained = [value for each in model.parameters() for value in each.flatten().tolist()]
    print("trained", *trained, *rates)
