"""The process that serves a run's metrics, so that scraping can't harm the launcher."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from ..core.errors import LaunchError, reason_of
from ..system import regular_files, terminal

Target = socket.socket | Path | None
"""The output of metrics: a listening socket, a file, or none."""
WRITTEN = (b"# HELP safe_launch_", b'{"time":')
"""First bytes of a file of metrics that a launch has written."""
PATIENCE = 5.0
"""Seconds that the process may take to write the end."""


def require_library() -> None:
    """Checks that prometheus_client is installed.

    Raises:
        LaunchError: it isn't.
    """
    if find_spec("prometheus_client") is None:
        problem = f"metrics need prometheus_client, which isn't installed for {sys.executable}"
        raise LaunchError(problem, "pip install 'safe-launch[metrics]'")


def is_port(target: str) -> bool:
    """Whether metrics are shown at a port, not in a file; `:80x` is meant as one."""
    host, colon, port = target.rpartition(":")
    return bool(colon) and "/" not in target and (port.isdecimal() or not host)


def opened(target: str) -> Target:
    """Makes sure that metrics can be shown at a file, `:PORT` or `HOST:PORT`, unless empty.

    Raises:
        LaunchError: they can't.
    """
    if not target:
        return None
    require_library()
    if is_port(target):
        host, _, port = target.rpartition(":")
        if not (port.isdecimal() and len(port) <= 5 and int(port) < 1 << 16):
            problem = f"--metrics {target}: {port!r} isn't a port: a number from 0 to 65535"
            raise LaunchError(problem, "a file is written `./NAME`")
        try:
            listener = socket.create_server((host, int(port)))
        except OSError as error:
            problem = f"--metrics {target}: nobody can listen there: {reason_of(error)}"
            raise LaunchError(problem, "choose another port") from error
        if not int(port):
            terminal.say(
                f"metrics: http://{host or 'localhost'}:{listener.getsockname()[1]}/metrics"
            )
        return listener
    if not Path(target).absolute().parent.is_dir():
        problem = f"--metrics {target}: there is no such folder"
        raise LaunchError(problem, "a port is written `:9400`")
    try:
        before = regular_files.read(Path(target))
    except FileNotFoundError:
        before = b""
    except OSError as error:
        problem = f"--metrics {target}: it can't be written: {reason_of(error)}"
        raise LaunchError(problem, "name a new file") from error
    if before and not before.startswith(WRITTEN):
        problem = f"--metrics {target}: it holds something other than metrics and is left unchanged"
        raise LaunchError(problem, "name a new file")
    return Path(target)


@contextmanager
def shown(target: Target, run: Path) -> Iterator[None]:
    """Shows a run's metrics until its end."""
    if target is None:
        yield
        return
    if isinstance(target, Path):
        process = _begun(run, ["--file", str(target)])
    else:
        with target:
            process = _begun(run, ["--listener", str(target.fileno())], target.fileno())
    try:
        yield
    finally:
        assert process.stdin is not None, "it was asked for"
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _begun(run: Path, words: Sequence[str], *descriptors: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "safe_launch", "metrics", str(run.absolute()), *words]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=descriptors,
        start_new_session=True,  # Ctrl-C is the launcher's
    )
