"""Launches of scripts that get stuck, several at a time, and what the launcher says of them."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.processes import FAST, PROGRAMS
from support.stacks import CURRENT, Stack
from support.waiting import LONG

SCRIPTS = PROGRAMS / "hangs"
PATIENCE = 3
"""The tests' --hang-report, in seconds."""
SIDE_BY_SIDE = 4
"""Runs at a time: most of them wait for most of the time."""


@dataclass(frozen=True)
class Case:
    """A script that is launched.

    Attributes:
        script: its name.
        arguments: its own.
        ranks: workers.
        options: further options of the launcher.
        goes_on: whether the run would go on after the report, and is stopped by the test.
        stack: versions of the frameworks.
    """

    script: str
    arguments: Sequence[object] = ()
    ranks: int = 2
    options: Sequence[str] = ()
    goes_on: bool = True
    stack: Stack = CURRENT


@dataclass(frozen=True)
class Ended:
    """What became of it.

    Attributes:
        code: the launcher's exit code.
        output: all that was written, by the workers as well.
        reports: the reports that the launcher has kept, the first first.
    """

    code: int
    output: str
    reports: Sequence[Mapping[str, Any]]

    def words(self) -> str:
        """What the launcher has said, as one line."""
        own = [line for line in self.output.splitlines() if line.startswith("[safe-launch]")]
        return " ".join(" ".join(own).replace("[safe-launch]", "").split())

    def blamed(self) -> dict[int, str]:
        """The ranks that the first report names, and the user's line in which each stands."""
        assert self.reports, self.output
        first = self.reports[0]
        return {
            standing["rank"]: _place(standing)
            for standing in first["standings"]
            if standing["rank"] in first["culprits"]
        }


def _place(standing: Mapping[str, Any]) -> str:
    """The user's innermost line, as reports name it; empty where no stack could be read."""
    own = [frame for frame in standing["frames"] if frame["file"] in standing["own_files"]]
    return f"{Path(own[-1]['file']).name}:{own[-1]['line']}" if own else ""


def ended(case: Case, folder: Path) -> Ended:
    """Launches a case and waits for its end; where it would go on, stops it once it is told."""
    (folder / "tmp").mkdir(parents=True)
    output = folder / "output"
    command = [
        *(str(case.stack.bin / "safe-launch"), "--log-dir=runs", f"--nproc={case.ranks}"),
        *(f"--hang-report={PATIENCE}", *FAST, *case.options),
        *(str(SCRIPTS / case.script), *map(str, case.arguments)),
    ]
    environment = {**case.stack.environment(), "TMPDIR": str(folder / "tmp")}
    with output.open("w") as file:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
    end = time.monotonic() + LONG
    try:
        while process.poll() is None and time.monotonic() < end:
            if case.goes_on and reports_in(folder):
                process.send_signal(signal.SIGTERM)
                process.wait(LONG)
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    text = output.read_text(errors="replace")
    assert "safe-launch itself failed" not in text, text
    return Ended(process.returncode, text, reports_in(folder))


def reports_in(folder: Path) -> list[dict[str, Any]]:
    """The reports that a launcher has kept in its run directory, the oldest first."""
    found = sorted(folder.glob("runs/*/attempt-*/standings-*.json"))
    reports = []
    for path in found:
        with suppress(ValueError):  # it is being written
            reports.append(json.loads(path.read_text()))
    return reports


@contextmanager
def begun(cases: Mapping[str, Case], folder: Path) -> Iterator[Callable[[str], Ended]]:
    """Launches cases side by side; what it gives waits for the end of the one of a name."""
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        futures = {name: pool.submit(ended, case, folder / name) for name, case in cases.items()}
        yield lambda name: futures[name].result()


def line_of(script: str, mark: str) -> str:
    """The line of a script that has a mark, as reports name it."""
    lines = (SCRIPTS / script).read_text().splitlines()
    (number,) = (place for place, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))
    return f"{script}:{number}"
