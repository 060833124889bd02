"""A launcher can be stopped at once in any wait, and no process is left."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from support.processes import LAUNCHER, environment, gone, launch, workshop
from support.waiting import wait_for

__all__ = ["workshop"]
FOR_EVER = 3600
"""Seconds of an import that is never awaited: longer than any test."""
SLOW = """
import os, pathlib, time
os.environ.get({read!r})
file = pathlib.Path("imports").open("a")
print(os.getpid(), file=file, flush=True)
number = len(pathlib.Path("imports").read_text().split())
time.sleep({seconds}[min(number, len({seconds})) - 1])
"""
FAILS_ONCE = """
import slow, os, sys
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit(3)
"""
Begin = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def begin(workshop: Path) -> Iterator[Begin]:
    """Starts a launch of a script that imports a slow installed module."""
    (workshop / "site-packages").mkdir()
    begun: list[subprocess.Popen[str]] = []

    def launch(
        *options: str, seconds: Sequence[float], read: str = "HOME", script: str = "import slow\n"
    ) -> subprocess.Popen[str]:
        (workshop / "train.py").write_text(script)
        text = SLOW.format(read=read, seconds=seconds)
        (workshop / "site-packages" / "slow.py").write_text(text)
        path = str(workshop / "site-packages")
        command = [LAUNCHER, "--log-dir=runs", "--nproc=2", *options]
        begun.append(
            subprocess.Popen(
                command,
                cwd=workshop,
                env=environment(workshop, PYTHONPATH=path),
                stderr=(workshop / "said").open("w"),
                text=True,
            )
        )
        return begun[-1]

    yield launch
    for process in begun:
        process.kill()
        process.wait()


def imports(folder: Path) -> Sequence[int]:
    """The processes that have begun to import, in order."""
    with suppress(OSError):
        return [int(line) for line in (folder / "imports").read_text().split()]
    return []


def stop(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Stops a launcher, which must end by this signal without a delay."""
    process.send_signal(number)
    assert process.wait() == 128 + number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("times", [1, 2], ids=["first", "again"])
def test_while_it_imports(workshop: Path, begin: Begin, number: signal.Signals, times: int) -> None:
    """The first time, and again with the workers' variables that an import has read."""
    # The port of the workers' store isn't known before the launch.
    read = {1: "HOME", 2: "MASTER_PORT"}[times]
    process = begin("train.py", seconds=[0.1] * (times - 1) + [FOR_EVER], read=read)
    wait_for(lambda: len(imports(workshop)) == times)
    stop(process, number)
    wait_for(lambda: gone(workshop))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_while_the_server_is_stopped(workshop: Path, begin: Begin, number: signal.Signals) -> None:
    """After SIGSTOP it never answers."""
    process = begin("train.py", seconds=[FOR_EVER])
    wait_for(lambda: len(imports(workshop)) == 1)
    psutil.Process(imports(workshop)[0]).suspend()
    stop(process, number)
    wait_for(lambda: gone(workshop))


def test_a_server_that_is_killed_at_a_relaunch(workshop: Path, begin: Begin) -> None:
    """The workers start without it, once, and meet."""
    script = FAILS_ONCE + "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
    process = begin(
        *("-v", "--max-restarts=1"),
        "train.py",
        seconds=[0, 0, FOR_EVER, 0],
        read="MASTER_PORT",
        script=script,
    )
    wait_for(lambda: len(imports(workshop)) == 3)  # twice for the first attempt
    psutil.Process(imports(workshop)[2]).kill()
    assert process.wait() == 0
    assert "every worker does its imports itself" in (workshop / "said").read_text()


def test_a_stopped_guardian_holds_nobody(workshop: Path, begin: Begin) -> None:
    """It isn't needed if the launcher ends normally."""
    script = "import slow, time, pathlib\nwhile not pathlib.Path('go').exists(): time.sleep(0.02)\n"
    process = begin("train.py", seconds=[0], script=script)
    wait_for(lambda: len(imports(workshop)) == 1)
    guardian(process).suspend()
    (workshop / "go").touch()
    assert process.wait() == 0


def test_launcher_and_guardian_are_killed_together(workshop: Path, begin: Begin) -> None:
    """The kernel ends the server, the workers and the store's host."""
    script = "import os, time, pathlib\npathlib.Path('up').touch()\ntime.sleep(600)\n"
    process = begin("train.py", seconds=[0], script=script)
    wait_for((workshop / "up").exists)
    for each in (guardian(process), psutil.Process(process.pid)):
        each.kill()
    wait_for(lambda: gone(workshop))


def test_a_lock_of_a_killed_build(workshop: Path) -> None:
    """Workers would wait for it forever without a message."""
    (workshop / "train.py").write_text(
        "from torch.utils.file_baton import FileBaton\n"
        "FileBaton('extensions/fused_adam/lock').wait()\nprint('went on')\n"
    )
    lock = workshop / "extensions" / "fused_adam" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    done = launch(workshop, "train.py", TORCH_EXTENSIONS_DIR=workshop / "extensions")
    assert done.returncode == 0
    assert "went on" in done.stdout
    assert "fused_adam/lock, made " in done.stderr
    assert not lock.exists()


def guardian(process: subprocess.Popen[str]) -> psutil.Process:
    """The launcher's child that was forked from itself."""
    own = psutil.Process(process.pid)
    found: list[psutil.Process] = []

    def look() -> bool:
        found[:] = [one for one in own.children() if one.name() == own.name()]
        return bool(found)

    wait_for(look)
    return found[0]
