"""Advice for loops on accelerate."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from task import MICRO_BATCH, RANKS, Net, Task, batch_of, main, optimizer_of
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset[dict[str, Tensor]]):
    """The samples, one after the other; divided a second time where that is wished."""

    def __init__(self, task: Task, divided: bool) -> None:
        self.samples = task.samples()
        if divided:
            self.samples = self.samples[task.rank :: RANKS]

    def __iter__(self):  # type: ignore[no-untyped-def]
        assert get_worker_info() is None
        return iter(self.samples)


def streamed(task: Task, size: int = MICRO_BATCH, divided: bool = False, **options: bool) -> None:
    """A loop with `accumulate` on a stream."""
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=task.accumulation,
        dataloader_config=DataLoaderConfiguration(**options),
    )
    loader = DataLoader(Stream(task, divided), batch_size=size, collate_fn=batch_of)
    net = Net()
    model, optimizer, loader = accelerator.prepare(net, optimizer_of(net), loader)
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch)
            task.saw(loss)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if accelerator.sync_gradients:
                task.stepped(model)


torch.manual_seed(0)
main(
    {
        "each-reads": lambda task: streamed(task, dispatch_batches=False),
        "each-reads-divided": lambda task: streamed(task, dispatch_batches=False, divided=True),
        "first-reads": lambda task: streamed(task, dispatch_batches=True),
        "split": lambda task: streamed(
            task, RANKS * MICRO_BATCH, split_batches=True, dispatch_batches=True
        ),
    }
)
