"""Trainings whose samples are drawn, divided or compared wrongly, and their correct twins.

trains_drawn_apart.py NAME... [--right]
"""

import os
import tempfile
from itertools import islice

import numpy as np
import torch
from says_words import STEPS, WORDS, adam, batches, run
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    Sampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

CLASSES = 4


def model() -> torch.nn.Module:
    layers = torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, CLASSES)
    return DistributedDataParallel(torch.nn.Sequential(*layers))


def labelled(count: int = 96, *, by_class: bool = False) -> TensorDataset:
    """Samples and their classes, the same on every rank."""
    chance = torch.Generator().manual_seed(2)
    labels = torch.randint(CLASSES, (count,), generator=chance)
    labels = labels.sort().values if by_class else labels
    return TensorDataset(torch.randn(count, 8, generator=chance) + labels[:, None], labels)


def epochs(net, optimizer, loader, number: int = 2, after=lambda: None) -> None:
    """Trains, and does something after each epoch."""
    for epoch in range(number):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        if hasattr(loader.dataset, "set_epoch"):
            loader.dataset.set_epoch(epoch)
        for values, labels in islice(loader, STEPS):
            cross_entropy(net(values), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
        after()


def divided(data, **more) -> DataLoader:
    return DataLoader(data, 4, sampler=DistributedSampler(data), **more)


def chosen_alone(right: bool) -> None:
    """As in https://github.com/jia-zhuang/pytorch-multi-gpu-training/issues/5: rank 0's best."""
    net, best = model(), 0.0
    held = labelled(32)
    evaluated = DataLoader(held, 4, sampler=DistributedSampler(held, shuffle=False))
    path = os.path.join(tempfile.mkdtemp(), "best.pt")

    def evaluate():
        nonlocal best
        net.eval()
        counts = torch.zeros(2)
        with torch.no_grad():
            for values, labels in evaluated:
                hits = (net(values).argmax(1) == labels).sum()
                counts += torch.tensor([float(hits), float(len(labels))])
        net.train()
        if right:
            torch.distributed.all_reduce(counts)
        accuracy = (counts[0] / counts[1]).item()
        if accuracy > best and torch.distributed.get_rank() == 0:
            best = accuracy
            torch.save(net.module.state_dict(), path)

    epochs(net, adam(net), divided(labelled()), after=evaluate)


def in_order(right: bool) -> None:
    """As in https://github.com/joaoamcarvalho/mpd-public/issues/6: sorted, and not shuffled."""
    net, data = model(), labelled(by_class=True)
    loader = DataLoader(data, 4, sampler=DistributedSampler(data, shuffle=right))
    epochs(net, adam(net), loader)


class Noisy(Dataset):
    """Adds noise by a generator that it holds, or by torch's."""

    def __init__(self, is_held: bool) -> None:
        self.data = labelled()
        self.chance = np.random.default_rng(0) if is_held else None

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, place):
        values, label = self.data[place]
        if self.chance is None:
            return values + torch.randn(8), label
        return values + torch.from_numpy(self.chance.normal(size=8)).float(), label


def drawn_by_workers(right: bool) -> None:
    """As in https://github.com/pytorch/pytorch/issues/5059, with a generator of the data set."""
    net = model()
    epochs(net, adam(net), divided(Noisy(not right), num_workers=1))


class OfRank(Sampler):
    """A part of the samples for each rank."""

    def __init__(self, data, rank: int, world_size: int) -> None:
        self.count, self.rank, self.world_size = len(data), rank, world_size

    def __len__(self) -> int:
        return self.count // self.world_size

    def __iter__(self):
        order = torch.randperm(self.count, generator=torch.Generator().manual_seed(0))
        return iter(order.tolist()[self.rank :: self.world_size])


def divided_again(right: bool) -> None:
    """As in https://github.com/huggingface/accelerate/issues/3336: a sampler of one rank."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    data = labelled()
    place = (0, 1) if right else (accelerator.process_index, accelerator.num_processes)
    net = torch.nn.Linear(8, CLASSES)
    loader = DataLoader(data, 4, sampler=OfRank(data, *place))
    net, optimizer, loader = accelerator.prepare(net, adam(net), loader)
    for values, labels in loader:
        accelerator.backward(cross_entropy(net(values), labels))
        optimizer.step()
        optimizer.zero_grad()


class Staged(Dataset):
    """Draws by the epoch."""

    def __init__(self) -> None:
        self.data, self.epoch = labelled(), 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, place):
        values, label = self.data[place]
        chance = torch.Generator().manual_seed(1000 * self.epoch + place)
        return values + torch.randn(8, generator=chance), label


def kept_by_workers(right: bool) -> None:
    """As in https://github.com/pytorch/pytorch/issues/97326: workers have the first epoch."""
    net = model()
    epochs(net, adam(net), divided(Staged(), num_workers=1, persistent_workers=not right))


class Changed(Dataset):
    """Has a transform."""

    def __init__(self, transform) -> None:
        self.data, self.transform = labelled(), transform

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, place):
        values, label = self.data[place]
        return self.transform(values), label


def halves(data, seed: int = 0):
    return random_split(data, [64, 32], torch.Generator().manual_seed(seed))


def evaluating(net, data):
    def evaluate():
        net.eval()
        with torch.no_grad():
            for values, labels in DataLoader(data, 4):
                cross_entropy(net(values), labels)
        net.train()

    return evaluate


def shared_transform(right: bool) -> None:
    """As in https://github.com/ildoonet/pytorch-randaugment/issues/16: of one data set."""
    net = model()
    trained, held = halves(Changed(lambda values: values * 1.1))
    if right:
        held = Subset(Changed(lambda values: values), held.indices)
    else:
        held.dataset.transform = lambda values: values
    epochs(net, adam(net), divided(trained), after=evaluating(net, held))


def shared_samples(right: bool) -> None:
    """As in https://github.com/theislab/multimil/issues/75: split twice, by two seeds."""
    net, data = model(), labelled()
    trained, _ = halves(data)
    _, held = halves(data, 0 if right else 1)
    epochs(net, adam(net), divided(trained), after=evaluating(net, held))


def seeded_again(right: bool) -> None:
    """As in https://github.com/huggingface/diffusers/issues/175: for each evaluation."""
    layers = torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, CLASSES)
    net, data = DistributedDataParallel(torch.nn.Sequential(*layers)), labelled(24)

    def evaluate():
        if not right:
            torch.manual_seed(torch.distributed.get_rank())

    epochs(net, adam(net), divided(data), 4, evaluate)


def weighted_by_class(right: bool) -> None:
    """As in https://github.com/deep-voice/soundbay/issues/49: four weights."""
    net, data = model(), labelled()
    labels = data.tensors[1]
    weights = 1 / labels.bincount().float()
    rank = torch.distributed.get_rank()
    part = Subset(data, range(rank, len(data), 2))
    weights = weights[labels[rank::2]] if right else weights
    chance = torch.Generator().manual_seed(rank)
    loader = DataLoader(part, 4, sampler=WeightedRandomSampler(weights, 48, generator=chance))
    epochs(net, adam(net), loader, 1)


def divided_by_ranks(right: bool) -> None:
    """As in https://github.com/sanderwood/bgpt/issues/5: DDP takes the mean."""
    net = model()
    optimizer, world_size = adam(net), torch.distributed.get_world_size()
    for values, labels in divided(labelled()):
        loss = cross_entropy(net(values), labels)
        if not right:
            loss = loss / world_size
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def reduced_again(right: bool) -> None:
    """As in https://github.com/kubeflow/pytorch-operator/issues/122: DDP has averaged them."""
    net = model()
    optimizer, world_size = adam(net), torch.distributed.get_world_size()
    for values, labels in divided(labelled()):
        cross_entropy(net(values), labels).backward()
        for parameter in net.parameters():
            torch.distributed.all_reduce(parameter.grad)
            if right:
                parameter.grad /= world_size
        optimizer.step()
        optimizer.zero_grad()


def mixed_up(right: bool) -> None:
    """As in https://github.com/voiler/IMPALA/issues/3: a view instead of a transposition."""
    layers = torch.nn.Embedding(WORDS, 16), torch.nn.Linear(16, WORDS)
    net = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = adam(net)
    for words in islice(batches(), STEPS):
        output = net(words)
        count, places, width = output.shape
        output = output.transpose(1, 2) if right else output.reshape(count, width, places)
        cross_entropy(output, words).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    run(
        {
            function.__name__: function
            for function in (
                *(chosen_alone, in_order, drawn_by_workers, divided_again, kept_by_workers),
                *(shared_transform, shared_samples, seeded_again, weighted_by_class),
                *(divided_by_ranks, reduced_again, mixed_up),
            )
        }
    )
