"""An inner launch of a wrapped command: safe-launch in place of torchrun, deepspeed or accelerate.

It is connected with `wrap` for as long as it runs, and says its exit code at the end.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from . import leftovers

MARK = "SAFE_LAUNCH_WRAP_ID"
"""Environment variable that marks the processes below a wrapped command, workers among them."""
OPTIONS = "SAFE_LAUNCH_WRAP_OPTIONS"
"""Environment variable with the options for inner launches; the hook works where it is set."""
HOOK = Path(__file__).with_name("hook")
"""The folder that makes a launcher an inner launch, by its `sitecustomize`."""
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that are handed on to an inner launch."""
POSITIONALS = ("training_script", "training_script_args")
"""torchrun's arguments that are no options."""


def hooked(environment: Mapping[str, str], mark: str, options: Sequence[str]) -> dict[str, str]:
    """The environment of a wrapped command."""
    path = environment.get("PYTHONPATH")
    return {
        **environment,
        "PYTHONPATH": f"{HOOK}{os.pathsep}{path}" if path else str(HOOK),
        MARK: mark,
        OPTIONS: json.dumps(list(options)),
    }


def unhooked(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment that a launch would have had; only the mark stays."""
    rest = {name: value for name, value in environment.items() if name != OPTIONS}
    path = rest.pop("PYTHONPATH", "").split(os.pathsep)
    own = [one for one in path if one != str(HOOK)]
    return rest | ({"PYTHONPATH": os.pathsep.join(own)} if any(own) else {})


def address(mark: str) -> str:
    """The socket that `wrap` listens at, in Linux's abstract namespace."""
    return f"\0safe-launch-wrap-{mark}"


def main() -> NoReturn:
    """Launches as `LAUNCHER ARGUMENTS...` of the command line says, and tells `wrap` the end."""
    from .cli import guarded

    launcher, *arguments = sys.argv[1:]
    options = json.loads(os.environ.get(OPTIONS, "[]"))
    mark = os.environ.get(MARK, "")
    own = unhooked(os.environ)
    os.environ.clear()
    os.environ.update(own)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with suppress(OSError):  # `wrap` has been killed; this launch will be
        connection.connect(address(mark))
    code = guarded(told(launcher, options, arguments))
    with suppress(OSError):
        connection.sendall(f"{int(code)}\n".encode())
    sys.exit(code)


def told(launcher: str, options: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """What safe-launch is asked for, where a launcher was asked for something.

    The launcher's own arguments come last and hold: they are the inner tool's.
    """
    from .cli import COMMANDS

    if launcher == "safe-launch" and arguments and arguments[0] in {*COMMANDS, "plan"}:
        return list(arguments)
    return [*options, *arguments]


def run(options: argparse.Namespace) -> None:
    """Stands for `torch.distributed.run.run`, which takes torchrun's options taken apart.

    Raises:
        SystemExit: the launch has failed; torchrun's error would tell less.
    """
    from torch.distributed.run import get_args_parser

    command = [sys.executable, "-P", "-m", "safe_launch.wrapped", "torchrun"]
    command += words(get_args_parser(), options)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    child = subprocess.Popen(command, preexec_fn=partial(leftovers.die_with, os.getpid()))
    with _passing_on(child):
        code = child.wait()
    if code:
        raise SystemExit(code if code > 0 else 128 - code)


def words(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[str]:
    """The command line that the options have been made from; defaults are left out."""
    found = []
    for action in parser._actions:
        value = getattr(options, action.dest, None)
        if not action.option_strings or value is None or str(value) == str(action.default):
            continue
        name = max(action.option_strings, key=len)
        found.append(name if action.nargs == 0 else f"{name}={getattr(value, 'value', value)}")
    script, arguments = (getattr(options, name) for name in POSITIONALS)
    return [*found, str(script), *map(str, arguments)]


@contextmanager
def _passing_on(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Hands the signals that would stop torchrun on to the launch that runs in its place."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = {
        number: signal.signal(number, lambda number, _frame: child.send_signal(number))
        for number in STOPS
    }
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    main()
