"""What the trainings that go wrong train: a small model, its texts, and a plain loop."""

import argparse
from collections.abc import Callable, Mapping
from itertools import count

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS, ACCUMULATION, WORDS = 12, 2, 40


class Net(torch.nn.Module):
    """Says the words that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(WORDS, 16)
        self.hidden = torch.nn.Linear(16, 16)
        self.head = torch.nn.Linear(16, WORDS)

    def forward(self, words: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        found = self.head(torch.relu(self.hidden(self.embedding(words))))
        return cross_entropy(found.flatten(0, 1).float(), labels.flatten())


def texts() -> TensorDataset:
    """Texts of eight words, the same on every rank."""
    return TensorDataset(torch.randint(WORDS, (96, 8), generator=torch.Generator().manual_seed(1)))


def batches(sampler: object = None, *, is_renewed: bool = False):
    """Batches without an end; renewed, always the first of an epoch."""
    data = texts()
    if sampler is None:
        sampler = DistributedSampler(data, shuffle=not is_renewed)
    loader = DataLoader(data, 4, sampler=sampler)
    for epoch in count():
        if isinstance(sampler, DistributedSampler):
            sampler.set_epoch(epoch)
        for (words,) in loader:
            yield words
            if is_renewed:
                break


def adam(model: torch.nn.Module, rate: float = 1e-2) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=rate)


def steps(call, optimizer: torch.optim.Optimizer, source) -> None:
    """A plain loop."""
    for _ in range(STEPS):
        words = next(source)
        call(words, labels=words).backward()
        optimizer.step()
        optimizer.zero_grad()


def run(faults: Mapping[str, Callable[[bool], None]]) -> None:
    """Makes the trainings that the command line names, wrongly, or with `--right` as is right."""
    parser = argparse.ArgumentParser()
    parser.add_argument("faults", nargs="+", choices=faults)
    parser.add_argument("--right", action="store_true")
    arguments = parser.parse_args()
    torch.distributed.init_process_group("gloo")
    for name in arguments.faults:
        torch.manual_seed(0)
        faults[name](arguments.right)
    torch.distributed.destroy_process_group()
