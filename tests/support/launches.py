"""The same command line under torchrun and under safe-launch: what was said, and the end."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from support.stacks import CURRENT

WAYS: Mapping[str, tuple[str, ...]] = {
    "torchrun": (str(CURRENT.bin / "torchrun"),),
    "spawn": (str(CURRENT.bin / "safe-launch"), "--start-method=spawn"),
    "warm": (str(CURRENT.bin / "safe-launch"),),
}
"""What a launch begins with: torchrun's, and ours in both of its ways to start workers."""


@dataclass(frozen=True)
class Done:
    """How a launch went.

    Attributes:
        code: the launcher's exit code.
        out: what each rank has written to its stdout, where that is kept in files.
        err: the same of its stderr.
        shown: the launcher's stdout.
        said: the launcher's stderr.
    """

    code: int
    out: tuple[str, ...]
    err: tuple[str, ...]
    shown: str
    said: str


def launch(
    way: str,
    folder: Path,
    *command: object,
    ranks: int = 1,
    options: tuple[str, ...] = (),
    **variables: object,
) -> Done:
    """Launches a command line and waits for its end; the workers' output goes into files.

    Args:
        way: one of `WAYS`.
        folder: where it runs; logs go into a folder of the way's name.
        command: the script and its arguments, or options of its own before them.
        ranks: workers.
        options: further options.
        variables: of its environment; None takes one away.
    """
    logs = folder / f"logs-{way}"
    done = subprocess.run(
        [
            *WAYS[way],
            f"--nproc-per-node={ranks}",
            "--redirects=3",
            f"--log-dir={logs}",
            *options,
            *map(str, command),
        ],
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        input="a line\n",
        check=False,
    )
    names = ("{}/stdout.log", "{}/stderr.log")
    if way != "torchrun":
        names = ("rank-{}.stdout.log", "rank-{}.stderr.log")
    out, err = (tuple(_text(logs, name.format(rank)) for rank in range(ranks)) for name in names)
    return Done(done.returncode, out, err, done.stdout, done.stderr)


def environment(**variables: object) -> dict[str, str]:
    """The environment of a launch."""
    both = {**CURRENT.environment(), "TORCH_CPP_LOG_LEVEL": "ERROR", **variables}
    return {name: str(value) for name, value in both.items() if value is not None}


def _text(logs: Path, name: str) -> str:
    """The newest log of this name."""
    found = sorted(logs.rglob(name), key=lambda one: one.stat().st_mtime)
    return found[-1].read_text(errors="replace") if found else ""
