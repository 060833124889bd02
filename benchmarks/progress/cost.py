"""What a rank's marks of its progress cost a step: the same steps with and without, in turns.

    python benchmarks/progress/cost.py [--pairs 1000]

One process trains a small model under DistributedDataParallel with a data loader, an all_reduce of
its loss, and AdamW; a step takes about 0.4 ms. Ten steps with the marks, as the guard makes them on
a real board, are timed in turns with ten in which torch is as it was, in an order drawn by chance,
so that what else the machine does falls on both. Compared are the fastest twentieths of the steps'
processor times, in which waiting for a core isn't counted, as other work on the machine only adds;
the spread is that of drawing the pairs anew.
"""

from __future__ import annotations

import argparse
import importlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count
from statistics import quantiles

import torch
import torch.distributed as dist
from safe_launch.evidence.observations import Observations
from safe_launch.guards import optimizer, progress
from safe_launch.progress import board
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def guarded(observations: Observations) -> Callable[..., None]:
    """Installs the guard; returns a function that puts its marks in and takes them out."""
    modules = [
        importlib.import_module(name) for name in progress.HOOKED if name.startswith("torch")
    ]
    holders = [
        *modules,
        torch.nn.Module,
        DistributedDataParallel,
        importlib.import_module("torch.utils.data.dataloader")._BaseDataLoaderIter,
    ]
    before = [dict(vars(holder)) for holder in holders]
    hooks = importlib.import_module("torch.optim.optimizer")._global_optimizer_post_hooks
    optimizer.install(importlib.import_module("torch.optim.optimizer"), observations)
    for module in modules:
        progress.install(module, observations)
    changed = [
        (holder, name, earlier[name], vars(holder)[name])
        for holder, earlier in zip(holders, before, strict=True)
        for name in earlier
        if vars(holder)[name] is not earlier[name]
    ]
    changed += [
        (torch.distributed, name, plain, marked)
        for holder, name, plain, marked in changed
        if holder is dist.distributed_c10d and getattr(dist, name, None) is plain
    ]
    marks = {number: hook for number, hook in hooks.items() if hook.__name__ == "stepped"}
    others = {number: hook for number, hook in hooks.items() if number not in marks}

    def put(is_in: bool) -> None:
        for holder, name, plain, marked in changed:
            setattr(holder, name, marked if is_in else plain)
        hooks.clear()
        hooks.update(others | marks if is_in else others)

    return put


class Training:
    """A training whose step takes about 0.4 ms."""

    def __init__(self) -> None:
        layers = [torch.nn.Linear(48, 48), torch.nn.ReLU()]
        self.model = DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.Linear(48, 1)))
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        data = TensorDataset(torch.ones(1 << 12, 48))
        self.batches = (batch for _ in count() for (batch,) in DataLoader(data, batch_size=4))

    def step(self) -> float:
        """Data, forward, backward, optimizer, a collective; returns its processor time in s."""
        begun = time.thread_time()
        loss = self.model(next(self.batches)).sum()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        dist.all_reduce(loss.detach())
        return time.thread_time() - begun


def main() -> None:
    """Prints the ratio, and what 95 of 100 draws lie between."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=1000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    observations = Observations()
    own = board.Board(0, 1)
    observations.show_on(board.slot_of(own.path, 0))
    put = guarded(observations)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    training = Training()
    for _ in range(500):
        training.step()
    pairs = []
    for _ in range(options.pairs):
        taken: dict[bool, list[float]] = {}
        for is_in in random.sample([True, False], 2):
            put(is_in)
            training.step()  # the first finds cold caches
            taken[is_in] = [training.step() for _ in range(10)]
        pairs.append(taken)
    drawn = sorted(_costs(random.choices(pairs, k=len(pairs)))[1] for _ in range(200))
    plain, ratio = _costs(pairs)
    print(f"a step takes {1e6 * plain:.0f} us; the board has seen {own.rows()[0].step:,} steps")
    print(f"with marks {ratio - 1:+.2%} ({drawn[4] - 1:+.2%} to {drawn[-5] - 1:+.2%})")
    print(f"that is {1e9 * plain * (ratio - 1):.0f} ns a step")
    print(f"the board has {board._SIZE} bytes a rank")


def _costs(pairs: Sequence[Mapping[bool, Sequence[float]]]) -> tuple[float, float]:
    """A step without marks, in seconds, and how many times as long one with marks takes."""
    with_marks, plain = (
        quantiles(chain.from_iterable(taken[is_in] for taken in pairs), n=20)[0]
        for is_in in (True, False)
    )
    return plain, with_marks / plain


if __name__ == "__main__":
    main()
