"""A job over several hosts for the tests: one launcher on each, what it says, how it ends.

with network("alpha", "beta") as hosts, job(folder, hosts, "script.py") as launchers:
    ended(launchers, 0)
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from support.hosts import LEAVING, Host
from support.stacks import CURRENT, Stack
from support.waiting import wait_for

PORT = 29_400
FAST = ("--leave-timeout=1", "--interrupt-timeout=1", "--shutdown-timeout=3")
SHORT = "--node-timeout=6"
"""For tests in which a node is silent; a launcher on a busy machine may be, for seconds."""


@dataclass(frozen=True)
class Launcher:
    """One launcher of a job.

    Attributes:
        host: where it runs.
        process: the launcher itself.
        output: the file with its stdout and stderr.
    """

    host: Host
    process: subprocess.Popen[str]
    output: Path

    def said(self) -> str:
        """All of its output so far."""
        return self.output.read_text()

    def words(self) -> str:
        """What the launcher itself has said so far, as one line."""
        own = [one for one in self.said().splitlines() if one.startswith("[safe-launch]")]
        return " ".join(" ".join(own).replace("[safe-launch]", "").split())

    def says(self, text: str) -> bool:
        """Whether it has said something."""
        return re.search(text, self.words()) is not None

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the launcher."""
        self.process.send_signal(number)

    def workers(self) -> list[int]:
        """The workers' processes that run on its host, once there is what they are forked from."""
        alike = {one.pid: _name(one) for one in self.host.processes() if _is_alike(one)}
        if "warm-server" not in alike.values():
            return []
        return [pid for pid, name in alike.items() if not name.startswith("warm-")]


def _is_alike(process: psutil.Process) -> bool:
    try:
        return any(word.endswith("/worker_entry.py") for word in process.cmdline())
    except psutil.Error:  # it has ended
        return False


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return "warm-"


def begin(
    host: Host,
    folder: Path,
    *command: object,
    stack: Stack = CURRENT,
    env: Mapping[str, object] | None = None,
) -> Launcher:
    """Starts a launcher, or whatever launches, on a host."""
    path = folder / f"{host.name}.out"
    variables = {name: str(value) for name, value in (env or {}).items()}
    with path.open("a") as file:
        argv = (stack.bin / str(command[0]), *command[1:])
        process = host.start(
            *argv,
            cwd=folder,
            env={**stack.environment(), **variables},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    return Launcher(host, process, path)


def options(hosts: Sequence[Host], rank: int | None, *own: object) -> tuple[object, ...]:
    """The command and options of a node's launcher; later ones hold."""
    return (
        "safe-launch",
        f"--nnodes={len(hosts)}",
        *(() if rank is None else (f"--node-rank={rank}",)),
        f"--master-addr={hosts[0].name}",
        f"--master-port={PORT}",
        "--nproc=1",
        "--log-dir=runs",
        *own,
    )


@contextmanager
def job(
    folder: Path,
    hosts: Sequence[Host],
    *command: object,
    own: Sequence[object] = (),
    each: Sequence[Sequence[object]] = (),
    stack: Stack = CURRENT,
    env: Mapping[str, object] | None = None,
) -> Iterator[list[Launcher]]:
    """A launcher on each host, in the order of their ranks; whoever is left is killed at the end.

    Args:
        folder: where they run.
        hosts: node 0 first.
        command: the script and its arguments.
        own: further options of all launchers.
        each: further options of each.
        stack: versions of the frameworks.
        env: further variables of the launchers.
    """
    launchers = []
    for rank, host in enumerate(hosts):
        told = options(hosts, rank, *own, *(each[rank] if each else ()))
        launchers.append(begin(host, folder, *told, *command, stack=stack, env=env))
    with ending(launchers):
        yield launchers


@contextmanager
def ending(launchers: Sequence[Launcher]) -> Iterator[None]:
    """Kills at the end whoever is left, and shows what all have said if the test fails."""
    try:
        yield
    except BaseException:
        for one in launchers:
            print(f"----- {one.host.name} ({one.process.poll()}):\n{one.said()[-8000:]}")
        raise
    finally:
        for one in launchers:
            if one.process.poll() is None:
                one.process.kill()
            one.process.wait()


def ended(launchers: Sequence[Launcher], *codes: int) -> None:
    """Waits until all have ended, each with its code or all with the one; nobody may be left."""
    wait_for(lambda: all(one.process.poll() is not None for one in launchers))
    found = [one.process.returncode for one in launchers]
    assert found == list(codes if len(codes) > 1 else codes * len(launchers))
    gone(launchers)


def gone(launchers: Sequence[Launcher]) -> None:
    """Waits until no process is left on the launchers' hosts; a guardian needs a moment."""
    wait_for(lambda: not any(one.host.processes() for one in launchers), seconds=LEAVING)


def exist(folder: Path, pattern: str, ranks: Sequence[int]) -> Callable[[], bool]:
    """Whether a file of each of the ranks is there."""
    return lambda: all((folder / pattern.format(rank)).exists() for rank in ranks)


def run_folders(folder: Path) -> list[Path]:
    """The run directories of a job."""
    return sorted((folder / "runs").iterdir())
