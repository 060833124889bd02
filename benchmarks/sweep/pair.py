"""Two processes that run cells in turn, forked from one that has imported everything."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import tempfile
import time
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from .cells import Cell, cell_of
from .models import WORLD

FORK = multiprocessing.get_context("fork")
LIMIT = 45.0
"""Seconds for a cell, which needs a few only."""


class Pair:
    """Two ranks; a context that ends them."""

    def __init__(self, *, deepspeed: bool, limit: float = LIMIT) -> None:
        self._limit = limit
        self._folder = tempfile.TemporaryDirectory()
        self._ends: list[Connection] = []
        self._ranks = []
        for rank in range(WORLD):
            ours, theirs = FORK.Pipe()
            arguments = (rank, theirs, Path(self._folder.name), deepspeed)
            process = FORK.Process(target=serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._ends.append(ours)
            self._ranks.append(process)

    def run(self, cell: Cell) -> dict[str, Any]:
        """The outcome of a cell: the worse one of the two ranks."""
        results: list[dict[str, Any]] = []
        until = time.monotonic() + self._limit
        waiting = list(self._ends)
        try:
            for end in self._ends:
                end.send(str(cell))
            while waiting and not any(one["outcome"] == "raises" for one in results):
                ready = wait(waiting, until - time.monotonic())
                if not ready:
                    why = f"{len(results)} of {WORLD} ranks are done after {self._limit:.0f} s"
                    return {"outcome": "hangs", "why": why}
                for end in ready:
                    waiting.remove(end)  # type: ignore[arg-type]
                    results.append(end.recv())  # type: ignore[union-attr]
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return {"outcome": "dies", "why": f"exit codes {[one.exitcode for one in self._ranks]}"}
        order = ("equal", "wrong", "raises")
        return max(results, key=lambda one: (order.index(one["outcome"]), one["off"]))

    def modules(self) -> list[str]:
        """The modules that a rank has imported so far."""
        self._ends[0].send("")
        while not isinstance(found := self._ends[0].recv(), list):
            pass  # an unread result
        return found

    def end(self) -> None:
        """Ends both processes."""
        for process in self._ranks:
            process.kill()
        for process, end in zip(self._ranks, self._ends, strict=True):
            process.join()
            end.close()
        self._folder.cleanup()


def serve(rank: int, end: Connection, folder: Path, deepspeed: bool) -> None:
    """Runs cells on one rank as long as there are more."""
    import torch
    from torch import distributed

    from .judged import judge

    output = os.open(os.devnull, os.O_WRONLY)
    os.dup2(output, 1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD))
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "0")
    torch.set_num_threads(1)
    store = distributed.FileStore(str(folder / "store"), WORLD)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=WORLD)
    if deepspeed:
        prepare_deepspeed()
    else:
        average_over_gloo()
    while True:
        try:
            key = end.recv()
        except EOFError:
            return
        end.send(judge(cell_of(key), rank) if key else list(sys.modules))


def average_over_gloo() -> None:
    """Has FSDP 2 get the mean that it asks for, as NCCL computes it.

    Over gloo torch 2.7 and 2.8 add up instead (https://github.com/pytorch/pytorch/issues/162338).
    """
    from torch import distributed

    scatter = distributed.reduce_scatter_tensor

    def scattered(output: Any, *args: Any, op: Any = distributed.ReduceOp.SUM, **more: Any) -> Any:
        is_mean = op == distributed.ReduceOp.AVG
        work = scatter(output, *args, op=distributed.ReduceOp.SUM if is_mean else op, **more)
        if is_mean:
            output.div_(WORLD)
        return work

    distributed.reduce_scatter_tensor = scattered


def prepare_deepspeed() -> None:
    """Gives DeepSpeed the existing group, without its inference kernel.

    Its query whether this CPU computes in fp16 is answered with yes: it does, slowly. Weights are
    gathered without autograd, as NCCL does it; gloo refuses those of 0.18.7 to 0.18.9 otherwise.
    """
    import deepspeed
    import torch
    from deepspeed.accelerator import get_accelerator

    backend: Any = importlib.import_module("deepspeed.comm.torch")

    accelerator = get_accelerator()
    supported = accelerator.supported_dtypes()
    accelerator.is_fp16_supported = lambda: True
    accelerator.supported_dtypes = lambda: [*supported, torch.float16]
    backend.build_shm_op = lambda: None
    gathers = backend.TorchBackend.all_gather_into_tensor
    backend.TorchBackend.all_gather_into_tensor = torch.no_grad()(gathers)
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
