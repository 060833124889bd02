"""Whom a report blames for a stalled run: random injections into real runs, as a table.

    python benchmarks/hangs/injections.py [COUNT] [--seed N] [--jobs N] [--keep FILE]

Each run is a launch of `tests/programs/hangs/loop.py` or `loaders.py` with 2 to 4 gloo ranks, in
which one rank has one fault in one phase of one step, all drawn by the seed; every seventh run has
no lasting fault. Seconds are from the last line in any rank's log to the report's file. --keep
writes a line of JSON for each run, and includes earlier runs in that file.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parents[2] / "tests" / "programs" / "hangs"
LAUNCHER = str(Path(sys.executable).parent / "safe-launch")
PATIENCE = 3
"""--hang-report, in seconds."""
LONG = 120.0
"""Seconds after which a run without a report ends."""
STUCK = {
    "sleep": "absent",
    "lock": "absent",
    "read": "absent",
    "gil": "absent",
    "stop": "stopped",
    "data": "ended",
    "branch": "divergent",
    "skip": "divergent",
}
"""The injections into `loop.py`, and the kind of hang of each."""
LOADERS = {"fork": "loader", "collate": "loader", "own": "absent", "pool": "absent"}
"""The same for `loaders.py`."""
PASSING = {"none": (), "nap": ("absent", "idle"), "busy": ()}
"""Temporary faults and the reports allowed meanwhile: a long sleep looks like a hang."""
PHASES = ("loading", "training", "evaluation", "saving")
TEXTS = {
    "sleep": "sleeps",
    "lock": "waits for a lock of its own",
    "read": "waits for a server",
    "gil": "an extension holds the interpreter",
    "stop": "is stopped (SIGSTOP)",
    "data": "has fewer batches",
    "branch": "enters a collective that the others don't",
    "skip": "skips a collective",
    "fork": "its loader's processes wait for an inherited lock",
    "collate": "its loader's processes sleep in collate",
    "own": "sleeps in collate itself",
    "pool": "a process of its pool was killed",
    "none": "nothing",
    "nap": "sleeps for 8 s and goes on",
    "busy": "computes for 8 s and goes on",
}


@dataclass(frozen=True)
class Injection:
    """A fault and its place.

    Attributes:
        fault: the kind.
        ranks: of the run.
        rank: the faulty one.
        phase: of the fault.
        step: of the fault.
    """

    fault: str
    ranks: int
    rank: int
    phase: str
    step: int

    @property
    def command(self) -> list[str]:
        """The script and its arguments."""
        if self.fault in LOADERS:
            return [str(SCRIPTS / "loaders.py"), self.fault, str(self.rank)]
        named = {"fault": self.fault, "rank": self.rank, "phase": self.phase, "step": self.step}
        return [str(SCRIPTS / "loop.py"), *(f"--{name}={value}" for name, value in named.items())]

    @property
    def kind(self) -> str:
        """The kind of hang; empty for none."""
        return {**STUCK, **LOADERS}.get(self.fault, "")


@dataclass(frozen=True)
class Result:
    """The result of an injection.

    Attributes:
        injection: the fault.
        report: the first report: kind, culprits and the user's line of each; None without one.
        seconds: from the standstill to the report; None without one.
        code: the launcher's exit code.
    """

    injection: Injection
    report: dict[str, Any] | None
    seconds: float | None
    code: int

    @property
    def is_rank_right(self) -> bool:
        """Whether exactly the faulty rank is named."""
        return self.report is not None and self.report["culprits"] == [self.injection.rank]

    @property
    def is_kind_right(self) -> bool:
        """Whether the kind is right."""
        return self.report is not None and self.report["kind"] == self.injection.kind


def drawn(count: int, seed: int) -> list[Injection]:
    """Random injections; each kind about equally often."""
    source = random.Random(seed)
    faults = [*STUCK, *LOADERS]
    found = []
    for number in range(count):
        fault = faults[(number - number // 7) % len(faults)]
        if number % 7 == 6:
            fault = source.choice([*PASSING])
        # With two ranks it is undecidable which of them has deviated.
        least = 3 if fault in ("branch", "skip") else 2
        ranks = source.randint(least, 4)
        phase = source.choice(PHASES)
        step = source.randrange(1, 8, 2)
        found.append(Injection(fault, ranks, source.randrange(ranks), phase, step))
    return found


def result_of(injection: Injection) -> Result:
    """Runs it until the first report, or its end."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [LAUNCHER, "--log-dir=runs", f"--hang-report={PATIENCE}", "--leave-timeout=0.5"]
        command += ["--shutdown-timeout=0.5", f"--nproc={injection.ranks}", *injection.command]
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
        end = time.monotonic() + LONG
        found: Path | None = None
        while process.poll() is None and time.monotonic() < end:
            found = next(folder.glob("runs/*/attempt-*/standings-1.json"), None)
            if found is not None and injection.kind:
                time.sleep(0.3)
                break
            time.sleep(0.1)
        last = max((path.stat().st_mtime for path in folder.glob("rank-*.log")), default=None)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        found = next(folder.glob("runs/*/attempt-*/standings-1.json"), None)
        if found is None:
            return Result(injection, None, None, process.returncode)
        report = json.loads(found.read_text())
        seconds = None if last is None or not injection.kind else found.stat().st_mtime - last
        return Result(injection, _short(report), seconds, process.returncode)


def _short(report: dict[str, Any]) -> dict[str, Any]:
    places = {}
    for standing in report["standings"]:
        own = [frame for frame in standing["frames"] if frame["file"] in standing["own_files"]]
        places[standing["rank"]] = f"{Path(own[-1]['file']).name}:{own[-1]['line']}" if own else ""
    kept = {name: report[name] for name in ("kind", "culprits", "waiting", "quiet")}
    return {**kept, "places": places}


def table(results: Sequence[Result]) -> list[str]:
    """The results by fault, in Markdown."""
    rows = [
        "| what one rank does | runs | rank right | kind right | seconds (median) | 90 % within |",
        "|---|---|---|---|---|---|",
    ]
    stuck = [result for result in results if result.injection.kind]
    for fault in [*STUCK, *LOADERS]:
        rows += _row(TEXTS[fault], [one for one in stuck if one.injection.fault == fault])
    return [*rows, *_row("**all that hang**", stuck)]


def _row(text: str, results: Sequence[Result]) -> list[str]:
    if not results:
        return []
    seconds = sorted(one.seconds for one in results if one.seconds is not None)
    times = ("", "")
    if seconds:
        tenth = seconds[min(len(seconds) - 1, int(len(seconds) * 0.9))]
        times = (f"{statistics.median(seconds):.1f}", f"{tenth:.1f}")
    rank = sum(one.is_rank_right for one in results)
    kind = sum(one.is_kind_right for one in results)
    return [f"| {text} | {len(results)} | {rank} | {kind} | {times[0]} | {times[1]} |"]


def passing_table(results: Sequence[Result]) -> list[str]:
    """The results of runs without a hang, in Markdown."""
    rows = ["| what one rank does | runs | reported | wrongly ended |", "|---|---|---|---|"]
    for fault in PASSING:
        own = [one for one in results if one.injection.fault == fault]
        told = sum(one.report is not None for one in own)
        rows.append(
            f"| {TEXTS[fault]} | {len(own)} | {told} | {sum(bool(one.code) for one in own)} |"
        )
    return rows


def kept(path: Path | None) -> list[Result]:
    """The results in a file of earlier runs."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    found = [json.loads(line) for line in lines]
    return [Result(**{**one, "injection": Injection(**one["injection"])}) for one in found]


def main() -> None:
    """Runs them in parallel and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("count", type=int, nargs="?", default=240)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    results = kept(options.keep)
    with ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(result_of, drawn(options.count, options.seed)):
            results.append(result)
            if options.keep is not None:
                with options.keep.open("a") as file:
                    print(json.dumps(asdict(result)), file=file)
            is_odd = result.injection.kind and not (result.is_rank_right and result.is_kind_right)
            if is_odd or (not result.injection.kind and (result.code or result.report)):
                print(f"{len(results)}: {result}", file=sys.stderr, flush=True)
    print("\n".join([*table(results), "", *passing_table(results)]))


if __name__ == "__main__":
    main()
