"""Trainings that resume wrongly without an error, and done right.

resumes_wrongly.py NAME [--resume] [--right]

Without --resume it saves after its third step, and goes on.
"""

import argparse
from itertools import islice

import torch
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS, SAVED, WORDS = 6, 3, 40


class Net(torch.nn.Module):
    """Says the words that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(WORDS, 16)
        self.head = torch.nn.Linear(16, WORDS)

    def forward(self, words: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.head(self.embedding(words))
        return {"loss": cross_entropy(found.flatten(0, 1), labels.flatten())}


def texts() -> TensorDataset:
    """Texts of eight words, the same on every rank."""
    return TensorDataset(torch.randint(WORDS, (96, 8), generator=torch.Generator().manual_seed(1)))


def by_hand(fault: str, *, is_right: bool, resumes: bool) -> None:
    """A loop over DDP that keeps what it saves in one file."""
    data, model = texts(), DistributedDataParallel(Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    loader, done = DataLoader(data, 4, sampler=DistributedSampler(data)), 0
    if resumes:
        saved = torch.load("last.pt")
        model.module.load_state_dict(saved["model"])
        if is_right or fault != "moments":
            optimizer.load_state_dict(saved["optimizer"])
        if is_right or fault != "schedule":
            schedule.load_state_dict(saved["schedule"])
        for group, rate in zip(optimizer.param_groups, schedule.get_last_lr(), strict=True):
            group["lr"] = rate
        done = SAVED
    skipped = done if is_right or fault != "order" else 0
    for step, (words,) in enumerate(islice(loader, skipped, skipped + STEPS - done), done + 1):
        model(words, labels=words)["loss"].backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step == SAVED and torch.distributed.get_rank() == 0:
            parts = {"model": model.module, "optimizer": optimizer, "schedule": schedule}
            torch.save({name: part.state_dict() for name, part in parts.items()}, "last.pt")


def accelerated(*, is_right: bool, resumes: bool) -> None:
    """A loop that loads its state and begins its loader anew."""
    from accelerate import Accelerator

    accelerator, net = Accelerator(cpu=True), Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    given = accelerator.prepare(net, optimizer, DataLoader(texts(), 4, shuffle=True))
    model, optimizer, loader = given
    done = 0
    if resumes:
        accelerator.load_state("state")
        done = SAVED
        loader = accelerator.skip_first_batches(loader, done) if is_right else loader
    for step, (words,) in enumerate(islice(loader, STEPS - done), done + 1):
        accelerator.backward(model(words, labels=words)["loss"])
        optimizer.step()
        optimizer.zero_grad()
        if step == SAVED:
            accelerator.save_state("state")


def trained(*, is_right: bool, resumes: bool) -> None:
    """A Trainer that doesn't skip what it has trained on."""
    from transformers import Trainer, TrainingArguments

    asked = TrainingArguments(
        "out",
        max_steps=STEPS,
        save_steps=SAVED,
        per_device_train_batch_size=4,
        ignore_data_skip=not is_right,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    data = [{"words": words, "labels": words} for (words,) in texts()]
    folder = f"out/checkpoint-{SAVED}" if resumes else None
    Trainer(Net(), asked, train_dataset=data).train(resume_from_checkpoint=folder)


parser = argparse.ArgumentParser()
parser.add_argument("fault", choices=("order", "moments", "schedule", "accelerated", "trained"))
parser.add_argument("--resume", action="store_true")
parser.add_argument("--right", action="store_true")
arguments = parser.parse_args()
torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
asked = {"is_right": arguments.right, "resumes": arguments.resume}
match arguments.fault:
    case "accelerated":
        accelerated(**asked)
    case "trained":
        trained(**asked)
    case by_loop:
        by_hand(by_loop, **asked)
torch.distributed.destroy_process_group()
