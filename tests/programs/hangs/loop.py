"""A training loop with DDP: metrics of all ranks, evaluation and saving after every second step.

With --fault a rank gets stuck in one of the ways in which that happens, in --phase of --step.
"""

from __future__ import annotations

import argparse
import ctypes
import logging
import os
import signal
import socket
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="none")
    parser.add_argument("--phase", default="training")
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--step", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=8)
    return parser.parse_args()


def sleep() -> None:
    """Waits for a file system that will be back any time."""
    time.sleep(3600)  # stuck: sleep


def gil() -> None:
    """Calls an extension that doesn't release the interpreter."""
    ctypes.PyDLL(None).sleep(3600)  # stuck: gil


def stop() -> None:
    """Is stopped from outside, by a person or a scheduler."""
    os.kill(os.getpid(), signal.SIGSTOP)  # stuck: stop


def lock() -> None:
    """Takes a lock that nobody gives back."""
    guard = threading.Lock()
    with guard:
        guard.acquire()  # stuck: lock


def read() -> None:
    """Asks a server that never answers."""
    ours, _theirs = socket.socketpair()
    ours.recv(1)  # stuck: read


class Trainer:
    """The loop and what it needs."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rank = dist.get_rank()
        self.trouble = {
            "sleep": sleep,
            "gil": gil,
            "stop": stop,
            "lock": lock,
            "read": read,
            "nap": self.nap,
            "busy": self.compute,
        }
        self.at("loading", options.step)
        self.model = DistributedDataParallel(
            nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def nap(self) -> None:
        """Waits for something that does come."""
        time.sleep(self.options.seconds)  # stuck: nap

    def compute(self) -> None:
        """Computes something by itself."""
        end = time.monotonic() + self.options.seconds
        while time.monotonic() < end:
            torch.randn(64, 64).svd()

    def has(self, fault: str, step: int) -> bool:
        """Whether this rank has a fault in this step."""
        options = self.options
        return (fault, self.rank, step) == (options.fault, options.rank, options.step)

    def at(self, phase: str, step: int) -> None:
        """Where a rank may get stuck."""
        logging.info("%s of step %d", phase, step)
        fault = self.options.fault
        if phase == self.options.phase and fault in self.trouble and self.has(fault, step):
            self.trouble[fault]()

    def train(self) -> None:
        """All steps."""
        for step in range(self.options.steps):
            if self.has("data", step):
                break
            x = torch.randn(8, 16)
            loss = (self.model(x) - x.sum(1, keepdim=True)).square().mean()
            self.at("training", step)
            self.optimizer.zero_grad()
            loss.backward()  # waits: backward
            self.optimizer.step()
            if self.has("branch", step):
                dist.all_reduce(torch.zeros(3))  # stuck: branch
            if not self.has("skip", step):
                self.log(step, loss.detach())
            if step % 2:
                self.evaluate(step)
                self.save(step)
        dist.barrier()  # waits: end

    def log(self, step: int, loss: torch.Tensor) -> None:
        """Prints the mean loss of all ranks."""
        dist.all_reduce(loss)  # waits: metric
        if self.rank == 0:
            print(f"step {step} loss {loss.item() / dist.get_world_size():.3f}", flush=True)

    def evaluate(self, step: int) -> None:
        """On every rank, its own part."""
        self.model.eval()
        with torch.no_grad():
            x = torch.randn(64, 16)
            error = self.model.module(x).square().mean()
            self.at("evaluation", step)
        dist.all_reduce(error)  # waits: evaluation
        self.model.train()

    def save(self, step: int) -> None:
        """Rank 0 writes, the others wait."""
        if self.rank == 0:
            torch.save(self.model.module.state_dict(), "checkpoint.pt")
        self.at("saving", step)
        dist.barrier()  # waits: saving


def main() -> None:
    """Trains."""
    options = parsed()
    dist.init_process_group("gloo")
    logging.basicConfig(filename=f"rank-{dist.get_rank()}.log", level=logging.INFO)
    Trainer(options).train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
