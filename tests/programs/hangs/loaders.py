"""Trains on batches of a data loader, which on one rank gets stuck, dies or takes its time.

MODE is `fork` (the loader's processes inherit a lock that a thread holds), `collate` (they sleep in
collate), `own` (the rank does so itself), `pool` (a process of a pool that tokenises beforehand is
killed), `slow` (they work for long) or `well`.
"""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

mode, faulty = sys.argv[1], int(sys.argv[2])
CACHE = threading.Lock()


class Texts(Dataset):
    """Texts, tokenised when they are asked for."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> torch.Tensor:
        if mode == "slow" and is_faulty and index == 16:
            work(8)
        with CACHE:  # stuck: fork
            return torch.full((4,), float(index))


def work(seconds: float) -> None:
    """Computes for some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        hashlib.pbkdf2_hmac("sha256", b"text", b"salt", 10_000)


def collate(texts: list[torch.Tensor]) -> torch.Tensor:
    """A batch."""
    if mode in ("collate", "own") and is_faulty and texts[0][0] >= 16:
        time.sleep(3600)  # stuck: collate
    return torch.stack(texts)


def tokenised(text: int) -> int:
    """The tokens of a text, in a process of the pool."""
    if text == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return text


def refresh(has_begun: threading.Event) -> None:
    """Keeps the cache fresh, now and then."""
    with CACHE:
        has_begun.set()
        time.sleep(1)


dist.init_process_group("gloo")
logging.basicConfig(filename=f"rank-{dist.get_rank()}.log", level=logging.INFO)
is_faulty = dist.get_rank() == faulty
if mode == "pool" and is_faulty:
    logging.info("tokenises")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(tokenised, range(8), chunksize=1)  # stuck: pool
logging.info("tokenised")
dist.barrier()  # waits: barrier
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
loader = DataLoader(
    Texts(),
    batch_size=4,
    collate_fn=collate,
    num_workers=0 if mode == "own" else 2,
    multiprocessing_context=None if mode == "own" else "fork",
)
if mode == "fork" and is_faulty:
    begun = threading.Event()
    threading.Thread(target=refresh, args=(begun,)).start()
    begun.wait()
for batch in loader:  # waits: loader
    logging.info("a batch of %d", len(batch))
    optimizer.zero_grad()
    model(batch).square().mean().backward()  # waits: backward
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
