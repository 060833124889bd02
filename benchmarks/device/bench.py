"""The measured device, and code shared by the parts of the check."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from safe_launch.machine.detect import devices

ROOT = Path(__file__).resolve().parents[2]
MIB, GIB = 2**20, 2**30
ALLOCATOR = {"cuda": "PYTORCH_CUDA_ALLOC_CONF", "npu": "PYTORCH_NPU_ALLOC_CONF"}
"""The variables that torch's and torch_npu's allocators read."""
MARK = "DEVICE_CHECK_PART"
"""A variable of all processes of a part, with its folder."""
COMMANDS = {
    "safe-launch": "-m safe_launch",
    "torchrun": "-m torch.distributed.run",
    "python": "",
}


class SkippedError(Exception):
    """The reason why a part can't run on this machine."""


@dataclass(frozen=True)
class Figure:
    """A measured value.

    Attributes:
        what: its description.
        here: its value on this device, with its unit.
        beside: its comparison: a prediction, a peer in the same run, a CPU's value.
        wrong: whether it differs from the required value.
        raw: numbers, in bytes or seconds.
    """

    what: str
    here: str
    beside: str = ""
    wrong: bool = False
    raw: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Bench:
    """The environment of a part.

    Attributes:
        kind: of the devices, in torch's terms: cuda or npu.
        profile: the name of their profile in hardware/accelerators.
        count: the number of devices.
        memory: bytes of one.
        folder: a part's own folder.
        bin: a folder with safe-launch, torchrun and python.
        tiny: whether sizes are for a dry run.
    """

    kind: str
    profile: str
    count: int
    memory: int
    folder: Path
    bin: Path
    tiny: bool

    @classmethod
    def read(cls, path: Path) -> Bench:
        """The bench written by `write`."""
        values = json.loads(path.read_text())
        return cls(**{**values, "folder": Path(values["folder"]), "bin": Path(values["bin"])})

    def write(self, path: Path) -> None:
        """Writes it as JSON."""
        path.write_text(json.dumps(asdict(self), default=str))

    @property
    def ranks(self) -> int:
        """Ranks of a launch: NCCL and HCCL need one device for each."""
        return min(self.count, 2)

    @property
    def ranks_told(self) -> str:
        """The ranks and their backend, in words."""
        backend = {"cuda": "NCCL", "npu": "HCCL"}[self.kind]
        return f"{self.ranks} rank{'s' * (self.ranks > 1)} over {backend}"

    def run(
        self,
        *command: object,
        folder: Path | None = None,
        seconds: float | None = None,
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command with a time limit; stdout and stderr are separate."""
        process = subprocess.Popen(
            [str(self.bin / str(command[0])), *map(str, command[1:])],
            cwd=folder or self.folder,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, errors = process.communicate()
            errors += f"\nit was killed after {seconds:g} s\n"
        return subprocess.CompletedProcess(command, process.returncode, output, errors)


def make_commands(folder: Path) -> None:
    """Writes the commands for this Python, which need not be on the PATH."""
    folder.mkdir()
    for name, module in COMMANDS.items():
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        path.chmod(0o755)


def used(index: int = 0) -> int:
    """Bytes in use on a device by all processes, from its vendor's tool."""
    return devices(os.environ)[index].used


def results_of(output: str) -> list[dict[str, Any]]:
    """The values of a program's lines that begin with RESULT."""
    lines = [line for line in output.splitlines() if line.startswith("RESULT ")]
    return [json.loads(line.removeprefix("RESULT ")) for line in lines]


def last_line(text: str) -> str:
    """The last line that isn't empty."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The result of a program's first rank.

    Raises:
        RuntimeError: there is none.
    """
    found = results_of(done.stdout)
    if not found:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip()[-1500:]}")
    return found[0]


def kill_all(mark: str) -> None:
    """Kills a part's processes, in any session."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == mark:
                process.kill()


@contextmanager
def started(*command: object, folder: Path, **files: Any) -> Iterator[subprocess.Popen[str]]:
    """A running program, ended afterwards."""
    process = subprocess.Popen(
        list(map(str, command)), cwd=folder, stdin=subprocess.DEVNULL, text=True, **files
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
