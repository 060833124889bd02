"""Trainings that clip, read or restore otherwise than their authors think.

trains_astray.py NAME... [--right]
"""

import contextlib
import tempfile
from itertools import islice

import torch
from says_words import ACCUMULATION, STEPS, Net, adam, batches, run, steps, texts
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

LIMIT = 0.1


def clipped_early(right: bool) -> None:
    """As in https://github.com/huggingface/diffusers/pull/721: once a micro batch."""
    model, source = DistributedDataParallel(Net()), batches()
    optimizer = adam(model)
    for _ in range(STEPS):
        for number in range(ACCUMULATION):
            is_last = number == ACCUMULATION - 1
            words = next(source)
            with contextlib.nullcontext() if is_last else model.no_sync():
                (model(words, labels=words) / ACCUMULATION).backward()
            if is_last or not right:
                clip_grad_norm_(model.parameters(), LIMIT)
        optimizer.step()
        optimizer.zero_grad()


def clipped_by_shard(right: bool) -> None:
    """As in https://github.com/PrimeIntellect-ai/OpenDiloco/pull/6: each shard by its norm."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    model, source = FullyShardedDataParallel(Net(), device_id=torch.device("cpu")), batches()
    optimizer = adam(model)
    for _ in range(STEPS):
        words = next(source)
        model(words, labels=words).backward()
        if right:
            model.clip_grad_norm_(LIMIT)
        else:
            clip_grad_norm_(model.parameters(), LIMIT)
        optimizer.step()
        optimizer.zero_grad()


class Stream(IterableDataset):
    """A rank's texts, which its processes divide only if that is right."""

    def __init__(self, right: bool) -> None:
        self.right, self.rank = right, torch.distributed.get_rank()

    def __iter__(self):
        own, about = islice(texts(), self.rank, None, 2), get_worker_info()
        return islice(own, about.id, None, about.num_workers) if self.right else own


def streamed_twice(right: bool) -> None:
    """As in https://github.com/huggingface/datasets/issues/3423: each process reads it all."""
    model = DistributedDataParallel(Net())
    loader = DataLoader(Stream(right), 4, num_workers=2)
    steps(model, adam(model), (words for (words,) in loader))


def parted_emptied(right: bool) -> None:
    """As in https://github.com/verl-project/verl/issues/7834: tied only on the meta device."""
    with torch.device("meta"):
        net = Net()
    net.head.weight = net.embedding.weight
    net.to_empty(device="cpu")
    if right:
        net.head.weight = net.embedding.weight
    for each in net.parameters():
        torch.nn.init.normal_(each, std=0.1)
    model = DistributedDataParallel(net)
    steps(model, adam(model), batches())


def loaded_empty(right: bool) -> None:
    """As in https://github.com/pytorch/pytorch/issues/140898: states that aren't there yet."""
    import torch.distributed.checkpoint as checkpoints
    from torch.distributed.checkpoint.state_dict import (
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )

    net, source = Net(), batches()
    model = DistributedDataParallel(net)
    optimizer = adam(model)
    steps(model, optimizer, source)
    folder = [tempfile.mkdtemp()]
    torch.distributed.broadcast_object_list(folder)
    states = get_optimizer_state_dict(net, optimizer)
    checkpoints.save({"model": net.state_dict(), "optim": states}, checkpoint_id=folder[0])
    optimizer = adam(model)
    states = get_optimizer_state_dict(net, optimizer) if right else optimizer.state_dict()
    held = {"model": net.state_dict(), "optim": states}
    checkpoints.load(held, checkpoint_id=folder[0])
    net.load_state_dict(held["model"])
    if right:
        set_optimizer_state_dict(net, optimizer, held["optim"])
    else:
        optimizer.load_state_dict(held["optim"])
    steps(model, optimizer, source)


def left_over(right: bool) -> None:
    """As in https://github.com/WalkingMeatAxolotl/AnimaLoraStudio/pull/305: an epoch's last."""
    model, source = DistributedDataParallel(Net()), batches()
    optimizer = adam(model)
    epoch = DataLoader([next(source) for _ in range(2 * ACCUMULATION + 1)], batch_size=None)
    for _ in range(STEPS // 2):
        for place, words in enumerate(epoch, 1):
            (model(words, labels=words) / ACCUMULATION).backward()
            if place % ACCUMULATION == 0 or (right and place == len(epoch)):
                optimizer.step()
                optimizer.zero_grad()


def skipping(right: bool) -> None:
    """As in https://github.com/pytorch/pytorch/issues/40497: every gradient overflows."""
    model, source = DistributedDataParallel(Net()), batches()
    optimizer, scaler = adam(model), torch.amp.GradScaler("cpu")
    for _ in range(5 * STEPS):
        words = next(source)
        loss = model(words, labels=words) * (1 if right else float("inf"))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def turned_nan(right: bool) -> None:
    """As in https://github.com/huggingface/transformers/issues/25065: nothing stops it."""
    model, source = DistributedDataParallel(Net()), batches()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        words = next(source)
        loss = model(words, labels=words)
        (loss if right or step < 2 else loss * float("nan")).backward()
        optimizer.step()
        optimizer.zero_grad()


def gathered(right: bool) -> None:
    """As in https://github.com/huggingface/accelerate/issues/287: the last batch is filled up."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = Net()
    model, optimizer = accelerator.prepare(model, adam(model))
    steps(model, optimizer, batches())
    held = accelerator.prepare(DataLoader(torch.arange(9), 4))
    model.eval()
    with torch.no_grad():
        for samples in held:
            gather = accelerator.gather_for_metrics if right else accelerator.gather
            print(len(gather(samples)))


FAULTS = {
    one.__name__: one
    for one in (
        left_over,
        clipped_early,
        clipped_by_shard,
        streamed_twice,
        parted_emptied,
        loaded_empty,
        skipping,
        turned_nan,
        gathered,
    )
}
run(FAULTS)
