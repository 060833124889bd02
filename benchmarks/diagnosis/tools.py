"""The tools: safe-launch, the log's last exception, and NVIDIA's rule-based attribution."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from cases import Answer

FAILED = (1, 2)
"""Exit codes of `safe-launch diagnose` for a failure, known or not (docs/using/exit-codes.md)."""
EXCEPTION = re.compile(r"(?:^|\s)(?:\w+\.)*\w+(?:Error|Exception|Interrupt|Exit)\b.*")
NVRX = "nvidia_resiliency_ext.attribution.restart_agent.cli"
TELLING = ("failure_class", "root_fingerprint", "signature")
Tool = Callable[[Path], Answer]


def ours(log: Path) -> Answer:
    """`safe-launch diagnose`."""
    command = [str(Path(sys.executable).with_name("safe-launch")), "diagnose", str(log)]
    start = time.monotonic()
    done = ran(command)
    return Answer(done.returncode in FAILED, done.stdout, time.monotonic() - start)


def last_exception(log: Path) -> Answer:
    """The first thing that a person looks for."""
    start = time.monotonic()
    lines = log.read_text(errors="replace").splitlines()
    found = [line for line in lines if EXCEPTION.search(line)]
    return Answer(bool(found), found[-1] if found else "", time.monotonic() - start)


def nvidia(folder: Path) -> Tool:
    """NVIDIA's restart agent (nvidia-resiliency-ext) without a model.

    Args:
        folder: its checkout's `src` folder; httpx and pydantic must be installed.
    """
    places = [str(folder), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}

    def tool(log: Path) -> Answer:
        command = [sys.executable, "-m", NVRX, "--disable-l1", str(log)]
        start = time.monotonic()
        said = json.loads(ran(command, environment).stdout)
        seconds = time.monotonic() - start
        primary = said["primary_failure"] or {}
        lines = [" ".join(str(primary.get(name) or "") for name in TELLING)]
        lines += [each["quote"] for each in said["evidence"] if "failure" in each["supports"]]
        return Answer(bool(primary), "\n".join([*lines, said["justification"]]), seconds)

    return tool


def ran(
    command: list[str], environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A finished command with any exit code.

    Raises:
        RuntimeError: its stdout was empty.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if not done.stdout:
        raise RuntimeError(f"{' '.join(command)} printed nothing: {done.stderr[-2000:]}")
    return done
