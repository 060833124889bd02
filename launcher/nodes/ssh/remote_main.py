"""Runs a launcher on a remote host, for the launch over ssh that started this process.

It is started as `python -m safe_launch.nodes.ssh.remote_main RUN` over ssh. The job comes over its
standard input, so that nothing needs quoting and the list of processes shows no secret. When that
input ends or stays silent, the other side is gone and the training here is stopped. Its events are
lines on the standard output, which begin with a mark that the training's output doesn't have.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial

from ...core.errors import ExitCode, LaunchError, reason_of
from ...core.hardware import VISIBLE
from ...core.output_routing import SHARED_CONSOLE
from ...system import orphans, terminal

BEAT = 5.0
"""Seconds between heartbeats of the launcher that started this process."""
SILENCE = 30.0
"""Seconds without a heartbeat after which the connection counts as cut."""


@dataclass(frozen=True, slots=True)
class Job:
    """A host's job.

    Attributes:
        folder: working directory.
        arguments: the arguments of `safe-launch`.
        devices: indices of the devices that the workers may see.
        environment: variables with literal values.
        expanded: variables in whose values `$NAME` is expanded on the host.
        venv_script: a script that bash sources before it starts `safe-launch`; empty for none.
    """

    folder: str
    arguments: tuple[str, ...]
    devices: tuple[int, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    expanded: Mapping[str, str] = field(default_factory=dict)
    venv_script: str = ""


def mark(run: str) -> str:
    """The prefix of this process's events on the standard output."""
    return f"\x1e{run} "


def job_line(job: Job) -> bytes:
    """The job as the first line of the standard input."""
    return f"{json.dumps(asdict(job))}\n".encode()


def signal_line(number: int) -> bytes:
    """A signal for the launcher there, as a later line of the standard input."""
    return f"{number}\n".encode()


def device_variables(devices: tuple[int, ...]) -> dict[str, str]:
    """The variables that let a process see these devices only."""
    return dict.fromkeys(VISIBLE, ",".join(map(str, devices)))


@dataclass(slots=True)
class _Orders:
    """The lines of the standard input; more may come while it `is_open`."""

    is_open: bool = True
    _waiting: bytes = b""

    def next(self, *others: int) -> list[str]:
        """Waits for lines or for another descriptor to be ready; returns the lines."""
        inputs = [*others, *([0] if self.is_open else [])]
        ready, _, _ = select.select(inputs, [], [], SILENCE if self.is_open else None)
        if ready and 0 not in ready:
            return []
        chunk = os.read(0, 65536) if ready else b""
        self.is_open = bool(chunk)
        *lines, self._waiting = (self._waiting + chunk).split(b"\n")
        return [line.decode() for line in lines if line]


def main(run: str) -> int:
    """Reports ready, reads the job, and runs it to its end; returns the exit code."""
    # If the connection is cut, writes fail, and the workers must be stopped all the same.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    connection = os.environ.get("SSH_CONNECTION", "").split()
    _report(run, "ready", connection[2] if len(connection) == 4 else "")
    orders = _Orders()
    lines: list[str] = []
    while not lines:
        if not orders.is_open:
            return ExitCode.SUCCESS
        lines = orders.next()
    job = Job(**json.loads(lines.pop(0)))
    try:
        launcher = start(job)
    except LaunchError as error:
        terminal.say(f"error: {error.problem}", f"hint: {error.hint}")
        code: int = error.code
    else:
        _report(run, "started")
        code = _attend(launcher, orders, lines)
    _report(run, "ended", str(code))
    return code


def start(job: Job) -> subprocess.Popen[bytes]:
    """Starts the launcher of this host, in the job's folder and environment.

    Raises:
        LaunchError: the folder can't be used, or --venv_script isn't there.
    """
    try:
        os.chdir(job.folder)
    except OSError as error:
        host = socket.gethostname()
        problem = f"host {host} can't use the folder {job.folder}: {reason_of(error)}"
        hint = "the project must be at the same path on all hosts: on a shared disk, or copied"
        raise LaunchError(problem, hint) from error
    os.environ.update(job.environment)
    for name, value in job.expanded.items():
        os.environ[name] = os.path.expandvars(value)
    os.environ.update(device_variables(tuple(job.devices)))
    os.environ[SHARED_CONSOLE] = "1"
    prepared = []
    if job.venv_script:
        if not os.path.isfile(job.venv_script):  # noqa: PTH113
            problem = f"host {socket.gethostname()} has no --venv_script {job.venv_script}"
            raise LaunchError(problem, "it must be at the same path on all hosts")
        prepared = ["bash", "-c", 'script=$1; shift; . "$script" && exec "$@"', "bash"]
        prepared.append(os.path.abspath(job.venv_script))  # noqa: PTH100
    return subprocess.Popen(
        [*prepared, sys.executable, "-P", "-m", "safe_launch", *job.arguments],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=partial(orphans.die_with, os.getpid()),
    )


def _attend(launcher: subprocess.Popen[bytes], orders: _Orders, lines: list[str]) -> int:
    """Passes signals on until the launcher has ended; stops it if the connection is cut."""
    ended = os.pidfd_open(launcher.pid)
    while launcher.poll() is None:
        for number in lines:
            launcher.send_signal(int(number))
        was_open = orders.is_open
        lines = orders.next(ended)
        if was_open and not orders.is_open:
            terminal.say(f"{socket.gethostname()}: connection lost: stopping the training")
            launcher.terminate()
    os.close(ended)
    return launcher.returncode if launcher.returncode >= 0 else 128 - launcher.returncode


def _report(run: str, *words: str) -> None:
    """Sends an event to the launch that started this process, if that still runs."""
    with suppress(OSError):
        os.write(1, f"{mark(run)}{' '.join(words)}\n".encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
