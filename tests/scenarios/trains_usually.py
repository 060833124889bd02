"""Trainings with mistakes that are often reported, and their correct twins.

trains_usually.py NAME... [--right]
"""

import os
import tempfile
from argparse import Namespace

import torch
from says_words import STEPS, Net, adam, batches, run, steps, texts
from small_texts import rows, small, stored, trainer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset


def padded_metric(right: bool) -> None:
    """As in https://github.com/roboflow/rf-detr/issues/1507: 41 samples on two ranks."""
    model = DistributedDataParallel(Net())
    steps(model, adam(model), batches())
    data = Subset(texts(), range(41))
    sampler = DistributedSampler(data, shuffle=False)
    model.eval()
    with torch.no_grad():
        losses = [model(words, words) for (words,) in DataLoader(data, 1, sampler=sampler)]
    if right:
        rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        losses = losses[: len(range(rank, len(data), world))]
    found = torch.tensor([sum(losses), len(losses)])
    torch.distributed.all_reduce(found)
    print(found[0] / found[1])


def begun_again(right: bool) -> None:
    """As in https://github.com/ultralytics/yolov5/issues/292: weights without the optimizer."""
    path = os.path.join(tempfile.mkdtemp(), "last.pt")
    for is_resumed in (False, True):
        model = DistributedDataParallel(Net())
        optimizer = adam(model)
        if is_resumed:
            kept = torch.load(path)
            model.module.load_state_dict(kept["model"])
            if right:
                optimizer.load_state_dict(kept["optimizer"])
        steps(model, optimizer, batches())
        kept = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(kept, path)


class Tuned(torch.nn.Module):
    """A new head on a frozen body, whose statistics may be kept."""

    def __init__(self, is_kept: bool) -> None:
        super().__init__()
        self.is_kept = is_kept
        self.body = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
        self.body.requires_grad_(False)
        self.head = torch.nn.Linear(8, 1)

    def train(self, mode: bool = True) -> "Tuned":
        super().train(mode)
        if self.is_kept:
            self.body.eval()
        return self

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(given)).pow(2).mean()


def followed_frozen(right: bool) -> None:
    """As in https://github.com/poppinace/indexnet_matting/issues/35: a frozen batch norm."""
    model = DistributedDataParallel(Tuned(right)).train()
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad])
    for words in (next(source) for source in [batches()] * STEPS):
        model(words.float()).backward()
        optimizer.step()
        optimizer.zero_grad()


def loaded_halved(right: bool) -> None:
    """As in https://github.com/tianweiy/CausVid/issues/19: weights of the checkpoint's type."""
    from transformers import AutoModelForCausalLM

    asked = {"dtype": torch.float32} if right else {}
    model = AutoModelForCausalLM.from_pretrained(stored(small("Llama").bfloat16()), **asked)
    data = [{"input_ids": words[:4], "labels": words[:4]} for words in rows()]
    trainer(model, data, asked={"bf16": True}).train()


def never_accumulated(right: bool) -> None:
    """As in https://github.com/huggingface/diffusers/pull/308: steps that prepare doesn't get."""
    from accelerate import Accelerator

    args = Namespace(gradient_accumulation_steps=4)
    given = vars(args) if right else {}
    accelerator = Accelerator(cpu=True, **given)
    model = Net()
    model, optimizer, loader = accelerator.prepare(model, adam(model), DataLoader(texts(), 4))
    for (words,) in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(words, labels=words))
            optimizer.step()
            optimizer.zero_grad()


FAULTS = {
    one.__name__: one
    for one in (*(padded_metric, begun_again, followed_frozen, loaded_halved, never_accumulated),)
}
run(FAULTS)
