"""The launch of a trial: its hosts, launchers, disks and outputs, and who runs where."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from support.faults.trial import Trial
from support.hosts import Host, network
from support.jobs import PORT
from support.stacks import CURRENT, ROOT

PROGRAMS = ROOT / "tests" / "programs" / "faults"
NAMES = ("alpha", "beta", "gamma")
SILENCE = 6
"""--node-timeout, in seconds."""
JOINING = 20
"""Seconds for which nodes wait for each other."""
WAYS = ("safe-launch", "torchrun")
STREAMS = {"closed-stdout": (1,), "closed-stderr": (2,), "closed-both": (1, 2)}
"""The streams of a launcher whose readers go."""
DISKS = {"full-runs": "runs", "full-checkpoints": "out"}
"""The folder of the job that is a small disk of its own."""


@dataclass(frozen=True)
class Job:
    """A launch that is under way.

    Attributes:
        trial: what it is of.
        way: one of `WAYS`.
        folder: where it runs.
        hosts: node 0 first.
        processes: the launcher of each host.
        readers: descriptors of the readers that are going to close.
    """

    trial: Trial
    way: str
    folder: Path
    hosts: Sequence[Host]
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    readers: list[int] = field(default_factory=list)

    @property
    def target(self) -> subprocess.Popen[str]:
        """The launcher of the host that is hit."""
        return self.processes[self.trial.node]

    @property
    def has_ended(self) -> bool:
        """Whether all launchers have."""
        return all(process.poll() is not None for process in self.processes)

    def said(self) -> tuple[str, ...]:
        """What each host's launcher and workers have said, as far as somebody reads it."""
        names = [host.name for host in self.hosts]
        return tuple((self.folder / f"{name}.said").read_text(errors="replace") for name in names)

    def disk(self) -> Path | None:
        """The small disk, as it is seen from outside of its host."""
        name = DISKS.get(self.trial.fault)
        holder = self.hosts[self.trial.node].holder
        return None if name is None else Path(f"/proc/{holder}/root{self.folder}/{name}")

    def marks(self, moment: str, attempt: int, rank: int | None = None) -> list[int]:
        """Process ids of ranks in a moment: of one, or of all on the host that is hit."""
        found = []
        pattern = f"{moment}-{'*' if rank is None else rank}-{attempt}"
        for path in (self.folder / "marks").glob(pattern):
            pid, host = path.read_text().split()
            if rank is not None or host == self.hosts[self.trial.node].name:
                found.append(int(pid))
        return found

    def ours(self, kind: str) -> list[int]:
        """Process ids of the fork server, the store's host or the guardian on the host."""
        found = []
        for process in self.hosts[self.trial.node].processes():
            with suppress(psutil.Error):
                is_child = process.ppid() == self.target.pid
                if process.name() == {"server": "warm-server", "store": "warm-store"}.get(kind) or (
                    kind == "guardian" and is_child and process.name() == "safe-launch"
                ):
                    found.append(process.pid)
        return found


@contextmanager
def launched(trial: Trial, way: str) -> Iterator[Job]:
    """A job that has just been started; nothing of it is left at the end."""
    with TemporaryDirectory(prefix="faults-") as name, network(*NAMES[: trial.hosts]) as hosts:
        job = Job(trial, way, Path(name), hosts)
        for part in ("marks", "tmp", "home", "out", "runs"):
            (job.folder / part).mkdir()
        for host in hosts:
            _mount(host, "/dev/shm", "16m")
        if (disk := DISKS.get(trial.fault)) is not None:
            _mount(hosts[trial.node], f"{job.folder}/{disk}", "8m")
        try:
            for node in range(trial.hosts):
                job.processes.append(_begin(job, node))
            yield job
        finally:
            end(job)


def _mount(host: Host, place: str, size: str) -> None:
    done = host.run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place)
    assert done.returncode == 0, done.stderr


def _begin(job: Job, node: int) -> subprocess.Popen[str]:
    trial, host = job.trial, job.hosts[node]
    streams: dict[int, int] = {}
    with (job.folder / f"{host.name}.said").open("w") as file:
        if node == trial.node:
            for number in STREAMS.get(trial.fault, ()):
                reader, streams[number] = os.pipe()
                job.readers.append(reader)
        limit = f"--nofile={trial.descriptors}:{trial.descriptors}"
        limited = ("prlimit", limit) if trial.fault == "descriptors" and node == trial.node else ()
        process = host.start(
            *limited,
            *_command(job, node),
            cwd=job.folder,
            env=environment(job),
            stdout=streams.get(1, file),
            stderr=streams.get(2, file),
            start_new_session=True,
        )
    for writer in streams.values():
        os.close(writer)
    return process


def environment(job: Job) -> dict[str, str]:
    """The variables of the launchers and of whatever else runs in the job's folder."""
    marks = {"MARKS": str(job.folder / "marks")}
    if job.trial.restarts:
        marks["FAIL_ONCE"] = "1"
    # torch makes its compiler's cache in TMPDIR when it is imported, and leaves it there.
    names = {"TMPDIR": "tmp", "HOME": "home", "TORCHINDUCTOR_CACHE_DIR": "home/inductor"}
    places = {name: str(job.folder / place) for name, place in names.items()}
    return {**CURRENT.environment(), **places, **marks}


def _command(job: Job, node: int) -> list[str]:
    trial, way = job.trial, job.way
    given = {"nnodes": trial.hosts, "nproc-per-node": trial.workers}
    given |= {"max-restarts": trial.restarts, "log-dir": "runs"}
    if way == "safe-launch":
        given |= {"leave-timeout": 1, "interrupt-timeout": 1, "shutdown-timeout": 3}
    if trial.hosts > 1:
        given |= {"rdzv-conf": f"join_timeout={JOINING}"}
    if trial.hosts > 1 and way == "safe-launch":
        given |= {"node-rank": node, "master-addr": job.hosts[0].name, "master-port": PORT}
        given |= {"node-timeout": SILENCE}
    elif trial.hosts > 1:
        given |= {"rdzv-backend": "c10d", "rdzv-id": "tune"}
        given |= {"rdzv-endpoint": f"{job.hosts[0].name}:{PORT}"}
    options = [f"--{name}={value}" for name, value in given.items()]
    program = PROGRAMS / f"{trial.program}.py"
    return [str(CURRENT.bin / way), *options, str(program), str(job.folder / "out")]


def end(job: Job) -> None:
    """Kills whoever is left, and waits until they are gone; somebody has counted them."""
    while left := [process for host in job.hosts for process in host.processes()]:
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        for launcher in job.processes:
            launcher.poll()
        time.sleep(0.02)
    for process in job.processes:
        process.wait()
    while job.readers:
        os.close(job.readers.pop())
