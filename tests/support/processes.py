"""Launches of small programs, and what is left of them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from support.stacks import CURRENT, ROOT
from support.waiting import wait_for

PROGRAMS = ROOT / "tests" / "programs"


LAUNCHER = str(CURRENT.bin / "safe-launch")


TORCHRUN = str(CURRENT.bin / "torchrun")


FAST = ("--leave-timeout=0.5", "--interrupt-timeout=0.5", "--shutdown-timeout=0.5")
"""For workers that don't heed a stop: those that do have the time that they need without it."""
LEAVING = 30.0
"""Seconds in which the last process of a launch goes; a worker that is left stays for minutes."""


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Path]:
    """A folder for a launch, with a temporary folder of its own; nobody may be left behind.

    Its path is short, as multiprocessing makes sockets in it, whose path has 107 bytes at most.
    """
    with TemporaryDirectory() as short:
        (tmp_path / "tmp").symlink_to(short)
        yield tmp_path
    try:
        wait_for(lambda: gone(tmp_path), seconds=LEAVING)
    finally:
        for process in psutil.process_iter():
            if belongs(process, tmp_path):
                process.kill()


def belongs(process: psutil.Process, folder: Path) -> bool:
    """Whether a process was started by a launch in the folder."""
    try:
        return process.environ().get("WORKSHOP") == str(folder)
    except psutil.Error:
        return False


def environment(folder: Path, **variables: object) -> dict[str, str]:
    """The environment of a launch."""
    own = {"WORKSHOP": folder, "TMPDIR": (folder / "tmp").resolve(), **variables}
    return {**CURRENT.environment(), **{name: str(value) for name, value in own.items()}}


def launch(
    folder: Path,
    *arguments: object,
    command: str = LAUNCHER,
    ours: bool = True,
    **variables: object,
) -> subprocess.CompletedProcess[str]:
    """Launches a program and waits for its end; `ours` adds the options that we always want."""
    options = own_options(command) if ours else ()
    return subprocess.run(
        [command, *options, *map(str, arguments)],
        cwd=folder,
        env=environment(folder, **variables),
        capture_output=True,
        text=True,
        input="",
        check=False,
    )


def begin(folder: Path, *arguments: object, command: str = LAUNCHER) -> subprocess.Popen[str]:
    """Launches a program and lets it run."""
    return subprocess.Popen(
        [command, *own_options(LAUNCHER), *map(str, arguments)],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def own_options(command: str) -> tuple[str, ...]:
    """Options of our own launcher."""
    return ("--log-dir=runs",) if command == LAUNCHER else ()


def ready(folder: Path, ranks: int) -> None:
    """Waits until all ranks of `stubborn.py` are under way."""
    wait_for(lambda: all((folder / f"ready-{rank}").exists() for rank in range(ranks)))


def gone(folder: Path) -> bool:
    """Whether no process of a launch in the folder is left."""
    return not any(belongs(one, folder) for one in psutil.process_iter())
