"""Trainings that clip, read or restore otherwise than their authors think.

trains_astray.py NAME... [--right]
"""

import contextlib

import torch
from says_words import ACCUMULATION, STEPS, Net, adam, batches, run
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

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


FAULTS = {one.__name__: one for one in (clipped_early, clipped_by_shard)}
run(FAULTS)
