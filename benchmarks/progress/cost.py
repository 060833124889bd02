"""The cost of a rank's progress marks: the same steps with and without, in turns.

    python benchmarks/progress/cost.py [--pairs 1000]

One process trains a small model under DistributedDataParallel with a data loader, an all_reduce of
its loss, and AdamW; a step takes about 0.4 ms. Ten steps with the marks, as the guard makes them on
a real board, are timed in turns with ten in which torch is as it was, in an order drawn by chance.
The medians of each pair's processor times are compared, which exclude waiting for a core; printed
are the median of the differences and its 95 % interval over draws of the pairs.

This is done three times: without marks on either side, which shows the machine's own noise; with
marks that rest; and with marks that never rest. After a short step the marks rest for
`step_times.REST`, and two steps are marked before they rest again: the cost of a step follows.
"""

from __future__ import annotations

import argparse
import importlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import median

import torch
import torch.distributed as dist
from safe_launch.evidence.observations import observations
from safe_launch.guards import optimizer, progress, step_times
from safe_launch.guards.step_times import REST
from safe_launch.progress import board, slot
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def guarded() -> Callable[..., None]:
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
    optimizer.install(importlib.import_module("torch.optim.optimizer"))
    for module in modules:
        progress.install(module)
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
    """Prints the time that marks add to a step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=1000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    own = board.Board(0, 1)
    observations.show_on(slot.slot_of(own.path, 0))
    put = guarded()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    training = Training()
    for _ in range(500):
        training.step()
    nothing = _told("no marks", lambda _is_in: put(False), training, options.pairs)
    step_times.REST = 1 << 62  # from the next step that is timed
    resting = _told("marks that rest", put, training, options.pairs)
    step_times.SHORT = 0
    step_times.times._rests_until = 0
    marking = _told("marks that never rest", put, training, options.pairs)
    share = 2 / (2 + REST / 1e9 / nothing.step)
    cost = resting.cost + share * (marking.cost - resting.cost)
    print(f"{share:.1%} of the steps are marked: {cost / nothing.step:+.2%}, {1e9 * cost:.0f} ns")
    print(f"the board has {board.SIZE} bytes a rank")


@dataclass(frozen=True)
class Told:
    """A step without marks, and the added time, in seconds."""

    step: float
    cost: float


def _told(name: str, put: Callable[[bool], None], training: Training, count: int) -> Told:
    """Measures and prints the time added to a step."""
    pairs = [_pair(put, training) for _ in range(count)]
    found = _median(pairs)
    drawn = sorted(_median(random.choices(pairs, k=count)).cost / found.step for _ in range(200))
    print(
        f"{name}: {found.cost / found.step:+.2%} ({drawn[4]:+.2%} to {drawn[-5]:+.2%}) of a step "
        f"of {1e6 * found.step:.0f} us"
    )
    return found


def _pair(put: Callable[[bool], None], training: Training) -> tuple[float, float]:
    """The median step without and with marks."""
    taken: dict[bool, float] = {}
    for is_in in random.sample([True, False], 2):
        put(is_in)
        training.step()  # the first finds cold caches
        taken[is_in] = median(training.step() for _ in range(10))
    return taken[False], taken[True]


def _median(pairs: Sequence[tuple[float, float]]) -> Told:
    return Told(
        median(plain for plain, _ in pairs), median(marked - plain for plain, marked in pairs)
    )


if __name__ == "__main__":
    main()
