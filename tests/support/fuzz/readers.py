"""What reads each input: a function of any bytes, which may refuse them in its way."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import signal
import tempfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from unittest import mock

from safe_launch.catalogue.reader import read_catalogue
from safe_launch.checkpoints.checkpoint import STATE, Saves
from safe_launch.checkpoints.save_folders import find_all
from safe_launch.cli import guarded
from safe_launch.commands.run_search import status_of
from safe_launch.core.errors import LaunchError
from safe_launch.hangs.flight_recorder import standings
from safe_launch.logs import report
from safe_launch.logs.reader import Reader
from safe_launch.logs.report import diagnosis_document
from safe_launch.logs.verdict import decisive, judge
from safe_launch.nodes.secure_channel import Direction, Handshake, hosting, joining
from safe_launch.options.hostfile import filtered, hosts_of
from safe_launch.report.run_status import columns
from safe_launch.schedulers import torchrun_options
from safe_launch.schedulers.read_placement import placement_of
from safe_launch.schedulers.this_host import Here

from support.fuzz.samples import ARCHIVE, INDEX, SCRIPT, SECRET, STATE_OF_TRAINER, TENSORS

FAILED = "safe-launch itself failed"


@functools.cache
def folder() -> Path:
    """A folder for the files that are read; it is removed with this process."""
    holder = tempfile.TemporaryDirectory(prefix="fuzz-")
    HELD.append(holder)
    return Path(holder.name)


HELD: list[tempfile.TemporaryDirectory[str]] = []


def file(name: str, data: bytes) -> Path:
    """A file with these bytes."""
    path = folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # a file system may wait for the disk where one is overwritten
    path.write_bytes(data)
    return path


CATALOGUE = read_catalogue()


def read_hello(data: bytes) -> None:
    """As node 0 reads what a caller says."""
    _shake_hands(hosting(SECRET), data)


def read_answer(data: bytes) -> None:
    """As a joining node reads what node 0 answers."""
    _shake_hands(joining(SECRET), data)


def _shake_hands(side: Handshake, data: bytes) -> None:
    _, needed = next(side)
    with contextlib.suppress(StopIteration):
        while 0 < needed <= len(data):
            piece, data = data[:needed], data[needed:]
            _, needed = side.send(piece)


def read_frames(data: bytes) -> None:
    """As frames, with a key and without."""
    for key in (b"key", b""):
        direction, buffer = Direction(key), bytearray(data)
        with contextlib.suppress(ValueError):
            while direction.opened(buffer, 1000) is not None:
                pass


def read_log(data: bytes) -> None:
    """As `safe-launch diagnose` reads a log."""
    reader = Reader(CATALOGUE)
    reader.read("log", BytesIO(data))
    attempts = judge(reader.attempts, CATALOGUE)
    last = decisive(attempts)
    report.headline(last)
    report.rows(last, ())
    json.dumps(diagnosis_document(last, attempts, [], ()))


def read_hosts(data: bytes) -> None:
    """A hostfile, and after a blank line what is chosen of it."""
    text, _, choice = data.decode(errors="replace").partition("\n\n")
    found = hosts_of(text, "hostfile")
    filtered(found, choice, "")
    filtered(found, "", choice)


def read_variables(data: bytes) -> None:
    """Variables of a scheduler or of torchrun, one a line."""
    pairs = (line.partition("=") for line in data.decode(errors="replace").splitlines())
    variables = {name: value for name, _, value in pairs}
    for is_launch in (True, False):
        with contextlib.suppress(LaunchError):
            placement_of({}, None, variables, HERE, is_launch=is_launch)
    placement_of(torchrun_options.variables(variables), None, {}, HERE, is_launch=False)


HERE = Here("n1", lambda: "n1.cluster", has_terminal=False, owns=lambda name: name == "n1")


def read_state(data: bytes) -> None:
    """As each file of a checkpoint whose others are as they should be."""
    files = {STATE: STATE_OF_TRAINER, "model.safetensors": TENSORS, "optimizer.pt": ARCHIVE}
    files |= {"model.safetensors.index.json": INDEX, "latest": b"global_step4"}
    states = ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt")
    files |= {f"global_step4/{name}": ARCHIVE for name in states}
    for changed in files:
        for name, content in files.items():
            file(f"saved/checkpoint-4/{name}", data if name == changed else content)
        find_all(Saves(str(folder() / "saved"), 0, {}), [2])


def read_run(data: bytes) -> None:
    """As every file of a run directory, for `safe-launch status`."""
    for name in ("launcher-0.json", "outcome.json", "request.json", "attempt-1/failures.json"):
        file(f"run/{name}", data)
    file("run/attempt-1/progress-0.json", data)
    found = status_of(folder() / "run")
    columns(found.ranks)
    command("status", "--json", str(folder() / "run"))
    command("status", str(folder() / "run"))


def read_dump(data: bytes) -> None:
    """As a flight recorder's dump."""
    standings([file("dump_0", data)])


def command(*arguments: str, **variables: str) -> int:
    """Runs a command of the launcher's in this process; its code.

    Raises:
        AssertionError: it has failed by a mistake of its own.
    """
    said = io.StringIO()
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals() if number}
    try:
        with (
            contextlib.redirect_stderr(said),
            contextlib.redirect_stdout(io.StringIO()),
            mock.patch.dict(os.environ, {**PLAIN, **variables}, clear=True),
            contextlib.chdir(folder()),
        ):
            code = guarded(arguments)
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        for number, handler in handlers.items():
            if number not in (signal.SIGKILL, signal.SIGSTOP) and handler is not None:
                signal.signal(number, handler)
    assert FAILED not in said.getvalue(), said.getvalue()
    return code


PLAIN = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}


def _plan(*arguments: str, **variables: str) -> None:
    assert command("plan", *arguments, **variables) in (0, 64, 78)


def plan_with(option: str, name: str) -> Callable[[bytes], None]:
    """Plans a training that is given a file."""

    def read(data: bytes) -> None:
        file("train.py", SCRIPT)
        _plan("--nproc=2", "train.py", *f"{option} {file(name, data).name}".split())

    return read


def plan_script(data: bytes) -> None:
    """Plans a training by this script."""
    _plan("--nproc=2", file("own.py", data).name, "--size=4")


def plan_line(data: bytes) -> None:
    """The words of a command line, one a line."""
    file("train.py", SCRIPT)
    words = [word for word in data.decode(errors="replace").replace("\0", "").splitlines() if word]
    if not any(word.startswith(NETWORK) for word in words):
        _plan(*words, "train.py")


NETWORK = ("-H", "--ho", "-i", "-e", "--inc", "--exc", "--num", "--la", "--no-", "--no_", "--ssh")
"""Options that might reach other hosts."""
