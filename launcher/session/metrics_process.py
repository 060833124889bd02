"""The process that shows a run's metrics: who scrapes it can't harm the launcher."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from ..core.errors import ExitCode, LaunchError

Target = socket.socket | Path | None
"""Where metrics are shown: a socket that listens, a file, nowhere."""
PATIENCE = 5.0
"""Seconds that the process may take to write the end."""


def require_library() -> None:
    """Checks that prometheus_client is installed.

    Raises:
        LaunchError: it isn't.
    """
    if find_spec("prometheus_client") is None:
        problem = f"metrics need prometheus_client, which isn't installed for {sys.executable}"
        raise LaunchError(ExitCode.USAGE, problem, "pip install 'safe-launch[metrics]'")


def is_port(target: str) -> bool:
    """Whether metrics are shown at a port, not in a file."""
    host, colon, port = target.rpartition(":")
    return bool(colon) and port.isdecimal() and "/" not in host


def opened(target: str) -> Target:
    """Makes sure that metrics can be shown there.

    Args:
        target: a file, `:PORT` or `HOST:PORT`; empty for no metrics.

    Raises:
        LaunchError: they can't.
    """
    if not target:
        return None
    require_library()
    if is_port(target):
        host, _, port = target.rpartition(":")
        try:
            return socket.create_server((host, int(port)))
        except (OSError, OverflowError) as error:
            problem = f"--metrics {target}: nobody can listen there: {error}"
            raise LaunchError(ExitCode.USAGE, problem, "choose another port") from error
    if not Path(target).absolute().parent.is_dir():
        problem = f"--metrics {target}: there is no such folder"
        raise LaunchError(ExitCode.USAGE, problem, "a port is written `:9400`")
    return Path(target)


@contextmanager
def shown(target: Target, run: Path) -> Iterator[None]:
    """Shows a run's metrics until its end.

    Args:
        target: as `opened` gives it.
        run: the run directory.
    """
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
