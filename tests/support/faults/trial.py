"""Trials: which fault, at which moment, in a job of which shape; all drawn by a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

MOMENTS = ("start", "imports", "steps", "evaluation", "saving", "teardown", "relaunch")
"""In the order of a run; `relaunch` is after a first attempt that has failed by itself."""
RUNNING = MOMENTS[2:5]
WITH_WORKERS = MOMENTS[1:]
WORLDS_OF_TRAINER = (1, 2, 4)
"""Ranks on which `trainer.py` has the same global batch."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault.

    Attributes:
        name: of the kind.
        text: what happens, for the table.
        moments: at which it can happen.
        hosts: the fewest hosts on which it can.
        is_ours: whether only our launcher has what it hits.
    """

    name: str
    text: str
    moments: tuple[str, ...]
    hosts: int = 1
    is_ours: bool = False


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("kill-rank", "SIGKILL to a rank", WITH_WORKERS),
        Fault("kill-launcher", "SIGKILL to a launcher", MOMENTS),
        Fault("kill-server", "SIGKILL to the fork server", WITH_WORKERS, is_ours=True),
        Fault("kill-guardian", "SIGKILL to the guardian", WITH_WORKERS, is_ours=True),
        Fault("kill-store", "SIGKILL to the store's host", WITH_WORKERS[1:], is_ours=True),
        Fault("kill-both", "SIGKILL to launcher and guardian", WITH_WORKERS, is_ours=True),
        Fault("SIGTERM", "SIGTERM to a launcher", MOMENTS),
        Fault("SIGINT", "SIGINT to a launcher", MOMENTS),
        Fault("SIGHUP", "SIGHUP to a launcher", MOMENTS),
        Fault("pause-rank", "a rank is stopped for 2 s", WITH_WORKERS),
        Fault("pause-launcher", "a launcher is stopped for 2 s", MOMENTS),
        Fault("pause-server", "the fork server is stopped for 2 s", WITH_WORKERS, is_ours=True),
        Fault("hold-rank", "a rank is stopped, then SIGTERM to the launcher", WITH_WORKERS),
        Fault(
            "hold-server",
            "the fork server is stopped, then SIGTERM to the launcher",
            WITH_WORKERS,
            is_ours=True,
        ),
        Fault("hold-guardian", "the guardian is stopped for good", WITH_WORKERS, is_ours=True),
        Fault("cut", "a host is cut off, silently", MOMENTS, hosts=2),
        Fault("unplug", "a host's interface goes down", MOMENTS, hosts=2),
        Fault("outage", "a host is cut off for 1.5 s", WITH_WORKERS, hosts=2),
        Fault("full-runs", "the run directory's disk is full", ("start", *RUNNING), is_ours=True),
        Fault("full-checkpoints", "the checkpoints' disk is full", ("start", "imports", "steps")),
        Fault("descriptors", "few descriptors are allowed", ("start",)),
        Fault("closed-stdout", "the reader of stdout goes", MOMENTS),
        Fault("closed-stderr", "the reader of stderr goes", MOMENTS),
        Fault("closed-both", "the readers of both go", MOMENTS),
    )
}


@dataclass(frozen=True, slots=True)
class Trial:
    """One launch with one fault.

    Attributes:
        number: its place in the campaign.
        seed: the campaign's.
        fault: one of `FAULTS`.
        moment: one of `MOMENTS`.
        program: `loop` or `trainer`.
        hosts: how many, each with a launcher.
        workers: of each host.
        node: the host that is hit.
        worker: the local rank that is hit.
        delay: seconds from the moment to the fault.
        descriptors: what `descriptors` allows each process.
    """

    number: int
    seed: int
    fault: str
    moment: str
    program: str
    hosts: int
    workers: int
    node: int
    worker: int
    delay: float
    descriptors: int

    @property
    def world(self) -> int:
        """Ranks of all hosts."""
        return self.hosts * self.workers

    @property
    def rank(self) -> int:
        """The rank that is hit, where ranks are in the order of the hosts."""
        return self.node * self.workers + self.worker

    @property
    def restarts(self) -> int:
        """The launcher's --max-restarts."""
        return int(self.moment == "relaunch")

    def __str__(self) -> str:
        """What identifies it for a person."""
        where = f"{self.hosts}x{self.workers}"
        return f"{self.number}-{self.fault}-{self.moment}-{self.program}-{where}"


def drawn(count: int, seed: int) -> list[Trial]:
    """The first trials of a campaign; every kind and moment comes up before any comes again."""
    source = random.Random(seed)
    kinds = [(fault, moment) for fault in FAULTS.values() for moment in fault.moments]
    order: list[tuple[Fault, str]] = []
    while len(order) < count:
        order += source.sample(kinds, len(kinds))
    return [_trial(number, seed, *order[number]) for number in range(count)]


def _trial(number: int, seed: int, fault: Fault, moment: str) -> Trial:
    source = random.Random(f"{seed}/{number}")
    hosts = max(fault.hosts, source.choice((1, 1, 1, 2, 2, 3)))
    workers = source.randint(1, 4 if hosts == 1 else 2)
    is_trainer = hosts * workers in WORLDS_OF_TRAINER and source.random() < 0.15
    return Trial(
        number,
        seed,
        fault.name,
        moment,
        "trainer" if is_trainer else "loop",
        hosts,
        workers,
        # Only node 0 hosts a store, and rank 0 saves.
        0 if fault.name in ("kill-store", "full-checkpoints") else source.randrange(hosts),
        source.randrange(workers),
        round(source.uniform(0, 1.0 if moment in ("start", "relaunch") else 0.2), 3),
        source.randint(10, 64),
    )
