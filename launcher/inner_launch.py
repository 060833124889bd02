"""An inner launch of a wrapped command: safe-launch in place of torchrun, deepspeed or accelerate.

It is connected to `wrap` as long as it runs, and reports its exit code at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from .commands.wrap_protocol import HELLO, NAME, OPTIONS, SOCKET, unhooked
from .core.private_names import ACTIONS
from .evidence import failed_workers
from .evidence.failed_workers import FailedWorker
from .system import orphans
from .system.signals import ENDING, REPORT, STOPS
from .system.unix_sockets import at_folder

POSITIONALS = ("training_script", "training_script_args")
"""torchrun's arguments that aren't options."""


def main() -> NoReturn:
    """Launches as `LAUNCHER ARGUMENTS...` on the command line, and reports to `wrap`."""
    from .cli import guarded

    launcher, *arguments = sys.argv[1:]
    options = json.loads(os.environ.get(OPTIONS, "[]"))
    sockets = os.environ.get(SOCKET, "")
    environment = unhooked(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with suppress(OSError), at_folder(sockets, NAME) as path:
        connection.connect(path)
        connection.sendall(HELLO)  # if `wrap` was killed, this launch will be too
    code = guarded(command_line(launcher, options, arguments))
    with suppress(OSError):
        connection.sendall(f"{int(code)}\n".encode())
    sys.exit(code)


def command_line(launcher: str, options: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """The arguments of safe-launch for those of another launcher.

    The launcher's own arguments come last and take precedence.
    """
    from .commands.registry import COMMANDS

    if launcher == "safe-launch" and arguments and arguments[0] in COMMANDS:
        return list(arguments)
    # deepspeed's default, but it selects the form.
    form = ["--launcher=pdsh"] if launcher == "deepspeed" else []
    return [*options, *form, *arguments]


def run(options: argparse.Namespace) -> None:
    """Replaces `torch.distributed.run.run`, which takes parsed options of torchrun.

    Tools catch torch's exceptions to clean up and to report. If nothing catches them, the tool
    ends with the launch's exit code and without torch's table, as safe-launch has reported the
    failure.

    Raises:
        Exception: torch's own: ChildFailedError if the launch has failed, SignalException if it
            was stopped.
    """
    from torch.distributed.run import get_args_parser

    command = [sys.executable, "-P", "-m", "safe_launch.inner_launch", "torchrun"]
    command += as_arguments(get_args_parser(), options)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    descriptor = os.memfd_create("failed-workers")  # which works with a full disk
    file = f"/proc/{os.getpid()}/fd/{descriptor}"
    child = subprocess.Popen(
        command,
        env={**os.environ, failed_workers.VARIABLE: file},
        preexec_fn=partial(orphans.die_with, os.getpid()),
    )
    with _passing_on(child):
        code = child.wait()
    failed = failed_workers.read(Path(file))
    os.close(descriptor)
    if code:
        code = code if code > 0 else 128 - code
        error = error_of(str(options.training_script), child.pid, code, failed)
        _end_quietly(error, code)
        raise error


def as_arguments(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[str]:
    """The command line for parsed options, without defaults."""
    words = []
    for action in ACTIONS.of(parser):
        value = getattr(options, action.dest, None)
        if not action.option_strings or value is None or str(value) == str(action.default):
            continue
        name = max(action.option_strings, key=len)
        words.append(name if action.nargs == 0 else f"{name}={getattr(value, 'value', value)}")
    script, arguments = (getattr(options, name) for name in POSITIONALS)
    # Of torch.distributed.launch alone: torch/distributed/run.py, `get_use_env`.
    local = [] if getattr(options, "use_env", True) else ["--local-rank=${local_rank}"]
    return [*words, str(script), *local, *map(str, arguments)]


@contextmanager
def _passing_on(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Passes the signals that torchrun would handle on to the launch that replaces it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = {
        number: signal.signal(number, lambda number, _frame: child.send_signal(number))
        for number in (*STOPS, REPORT)
    }
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def error_of(script: str, pid: int, code: int, failed: Sequence[FailedWorker]) -> Exception:
    """The exception torch raises for this end: ChildFailedError, or SignalException after a stop.

    The `failed` workers are those of this node, the earliest first. Without any, the failed process
    is the launch's own, `pid`, with rank -1.
    """
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    error: Exception
    if not failed and code - 128 in ENDING:
        number = signal.Signals(code - 128)
        error = SignalException(f"Process {os.getpid()} got signal: {number}", sigval=number)
        return error
    failures = {worker.rank: ProcessFailure(*worker.process) for worker in failed}
    for worker in failed:
        failures[worker.rank].timestamp = int(worker.time)
    if not failures:
        failures[-1] = ProcessFailure(-1, pid, code, "")
        failures[-1].message = f"safe-launch ended with exit code {code}"
    error = ChildFailedError(script, failures)
    return error


def _end_quietly(error: Exception, code: int) -> None:
    """Makes the process end with the exit code, and print nothing, if the error isn't caught."""
    earlier = sys.excepthook

    def hook(
        kind: type[BaseException], raised: BaseException, traceback: TracebackType | None
    ) -> None:
        if raised is error:
            raise SystemExit(code)
        earlier(kind, raised, traceback)

    sys.excepthook = hook


if __name__ == "__main__":
    main()
