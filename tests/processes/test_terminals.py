"""On a terminal rank 0 has one of the same size; elsewhere it has a pipe."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.processes import LAUNCHER, environment, workshop
from support.waiting import wait_for

__all__ = ["workshop"]

SEES = """
import os, pathlib, sys
rank = os.environ["RANK"]
print(f"rank {rank}:", sys.stdout.isatty(), sys.stderr.isatty(), flush=True)
try:
    os.close(os.open("/dev/tty", os.O_RDWR))
    print("it has the user's terminal", flush=True)
except OSError:
    pass
if rank == "0" and sys.stdout.isatty():
    columns = os.get_terminal_size().columns
    print("columns", columns, flush=True)
    while columns == os.get_terminal_size().columns and sys.argv[1:] == ["resized"]:
        print(".", end="", flush=True)
    print("columns", os.get_terminal_size().columns, flush=True)
"""
PRINTS = """
import os, sys
if os.environ["RANK"] == "0":
    for number in range(100_000):
        print(f"{number:06} \\x1b[32mgreen\\x1b[0m", flush=number % 7 == 0)
    print("the last line")
"""
STAYS = "import os, time\nprint('ready', os.environ['RANK'], flush=True)\ntime.sleep(600)\n"


class Terminal:
    """A launcher's terminal.

    Attributes:
        keyboard: the descriptor for typed input.
        launcher: the launcher that runs in it.
        shown: the output to the terminal.
    """

    def __init__(self, keyboard: int, launcher: subprocess.Popen[bytes]) -> None:
        self.keyboard = keyboard
        self.launcher = launcher
        self.shown = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self.keyboard, 65536)
            except OSError:  # end of the terminal
                return
            self.shown += chunk

    def resize(self, columns: int) -> None:
        """Sets the number of columns."""
        fcntl.ioctl(self.keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    def end(self) -> int:
        """Waits for the launcher's end and all output; returns the exit code."""
        code = self.launcher.wait()
        self._reader.join()
        return code


@contextmanager
def terminal(folder: Path, *command: object, leads: bool = True) -> Iterator[Terminal]:
    """A terminal that runs a command; without `leads` it isn't the controlling one."""
    keyboard, screen = os.openpty()
    fcntl.ioctl(keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 133, 0, 0))
    words = ["setsid", *(("--ctty",) if leads else ()), "--wait", *map(str, command)]
    with subprocess.Popen(
        words, cwd=folder, env=environment(folder), stdin=screen, stdout=screen, stderr=screen
    ) as launcher:
        os.close(screen)
        found = Terminal(keyboard, launcher)
        try:
            yield found
        finally:
            launcher.kill()
            print(found.shown.decode(errors="replace"))
    os.close(keyboard)


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_rank_0_has_a_terminal_of_the_same_size(method: str, workshop: Path) -> None:
    """It follows resizes, and isn't the worker's controlling terminal."""
    (workshop / "sees.py").write_text(SEES)
    own = ("--log-dir=runs", "--nproc=2", f"--start-method={method}")
    with terminal(workshop, LAUNCHER, *own, "sees.py", "resized") as window:
        wait_for(lambda: b"columns 133\r\n" in window.shown)
        window.resize(71)
        assert window.end() == 0
        assert b"columns 71\r\n" in window.shown
        assert b"rank 0: True True\r\n" in window.shown
        assert b"rank 1: False False\r\n" in window.shown
        assert b"it has the user's terminal" not in window.shown


@pytest.mark.parametrize(
    ("options", "rest", "seen"),
    [
        ((), "| cat", "False True"),
        ((), "2> errors", "True False"),
        (("--tee=3",), "", "False False"),
        (("--redirects=1",), "", "False True"),
    ],
)
def test_what_goes_elsewhere_is_a_pipe(
    options: tuple[str, ...], rest: str, seen: str, workshop: Path
) -> None:
    """Stdout and stderr separately; prefixed lines never go to a terminal."""
    (workshop / "sees.py").write_text(SEES)
    command = f"{LAUNCHER} --log-dir=runs {' '.join(options)} sees.py {rest}"
    with terminal(workshop, "bash", "-o", "pipefail", "-c", command) as window:
        assert window.end() == 0
    log = next(workshop.glob("runs/*/attempt-1/rank-0.log"))
    assert f"rank 0: {seen}\n" in log.read_text()


def test_no_byte_is_lost_or_added(workshop: Path) -> None:
    """For any amount of output, in the terminal and in the log."""
    (workshop / "prints.py").write_text(PRINTS)
    expected = [f"{number:06} \x1b[32mgreen\x1b[0m" for number in range(100_000)]
    with terminal(workshop, LAUNCHER, "--log-dir=runs", "prints.py") as window:
        assert window.end() == 0
    log = next(workshop.glob("runs/*/attempt-1/rank-0.log"))
    assert log.read_text().split("\n") == [*expected, "the last line", ""]
    assert "\r\n".join([*expected, "the last line", ""]).encode() in window.shown


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")
def test_where_there_is_no_pseudo_terminal(workshop: Path) -> None:
    """In such a container workers write to pipes, and train."""
    (workshop / "sees.py").write_text(SEES)
    hidden = "mount -t tmpfs tmpfs /dev/pts && mount --bind /dev/null /dev/ptmx"
    inside = f"{hidden} && exec {LAUNCHER} --log-dir=runs sees.py"
    with terminal(workshop, "unshare", "--mount", "bash", "-c", inside) as window:
        assert window.end() == 0
        assert b"rank 0: False False\r\n" in window.shown


def test_ctrl_c(workshop: Path) -> None:
    """It stops the launcher, which stops the workers."""
    (workshop / "stays.py").write_text(STAYS)
    with terminal(workshop, LAUNCHER, "--log-dir=runs", "--nproc=2", "stays.py") as window:
        wait_for(lambda: b"ready 0" in window.shown and b"ready 1" in window.shown)
        os.write(window.keyboard, b"\x03")
        assert window.end() == 128 + signal.SIGINT
        assert b"SIGINT: stopping the workers" in window.shown


def test_a_launcher_without_a_terminal_of_its_own(workshop: Path) -> None:
    """A session leader uses pipes: the worker's terminal would hang it up."""
    (workshop / "sees.py").write_text(SEES)
    own = ("--log-dir=runs", "--start-method=spawn", "sees.py")
    with terminal(workshop, LAUNCHER, *own, leads=False) as window:
        assert window.end() == 0
        assert b"rank 0: False False\r\n" in window.shown
