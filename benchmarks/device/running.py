"""Runs the parts in turn, each in a separate process with a time limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from .bench import MARK, Bench, kill_all, make_commands
from .machine import Machine

PARTS = (
    *("context", "forked", "ends", "memory", "failures", "out_of_memory", "hang", "steps", "numa"),
)
"""Modules of this folder in running order: short and informative ones first."""
LEAST = 5.0
"""Seconds left that a part needs to start."""
PATIENCE = 3
"""The factor on a dry run's limits: its machine is busy."""
Said = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """The result of a part.

    Attributes:
        title: the part's.
        verdict: `right`, `wrong`, `failed`, `too long` or `skipped`.
        seconds: its duration.
        reason: why it was skipped or failed.
        figures: its measurements, also from before a failure.
    """

    title: str
    verdict: str
    seconds: float
    reason: str
    figures: Sequence[Mapping[str, Any]]


def outcomes(
    machine: Machine, names: Sequence[str], folder: Path, until: float, *, tiny: bool, say: Said
) -> dict[str, Outcome]:
    """Runs these parts until that moment of the monotonic clock."""
    make_commands(folder / "bin")
    found = {}
    for name in names:
        (folder / name).mkdir()
        bench = Bench(
            kind=machine.kind,
            profile=machine.profile,
            count=machine.count,
            memory=machine.seen.get("memory", machine.memory),
            folder=folder / name,
            bin=folder / "bin",
            tiny=tiny,
        )
        found[name] = outcome(machine, name, bench, until, say)
        say(f"{name}: {found[name].verdict}, {found[name].seconds:.0f} s {found[name].reason}")
    return found


def outcome(machine: Machine, name: str, bench: Bench, until: float, say: Said) -> Outcome:
    """Runs a part to its end or its limit."""
    part = import_module(f"device.{name}")
    left = min(part.SECONDS * (PATIENCE if bench.tiny else 1), until - time.monotonic())
    if missing := machine.missing(part.NEEDS):
        return Outcome(part.TITLE, "skipped", 0, missing, ())
    if left < LEAST:
        return Outcome(part.TITLE, "skipped", 0, "no time was left for it", ())
    say(f"{name}: {part.TITLE} (at most {left:.0f} s)")
    begun = time.monotonic()
    is_late, output = _run(name, bench, left)
    seconds = round(time.monotonic() - begun, 1)
    lines = _lines(bench.folder / "figures")
    figures = [line for line in lines if "what" in line]
    for figure in figures:
        say(
            f"  {'WRONG ' * figure['wrong']}{figure['what']}: {figure['here']} [{figure['beside']}]"
        )
    end = lines[-1] if lines else {}
    if is_late:
        return Outcome(part.TITLE, "too long", seconds, f"ended after {left:.0f} s", figures)
    if "skipped" in end:
        return Outcome(part.TITLE, "skipped", seconds, end["skipped"], figures)
    if "error" in end or output or not figures:
        reason = end.get("error", output or "it has measured nothing")
        return Outcome(part.TITLE, "failed", seconds, reason, figures)
    wrong = any(figure["wrong"] for figure in figures)
    return Outcome(part.TITLE, "wrong" if wrong else "right", seconds, "", figures)


def _run(name: str, bench: Bench, seconds: float) -> tuple[bool, str]:
    """Whether a part exceeded its time; how its process died, if it did."""
    bench.write(bench.folder / "bench.json")
    command = [sys.executable, str(Path(__file__).with_name("one_part.py")), name]
    command += [str(bench.folder / "bench.json"), str(bench.folder / "figures")]
    with (bench.folder / "printed").open("w+") as printed:
        process = subprocess.Popen(
            command,
            env=_environment(bench),
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True, ""
        finally:
            kill_all(str(bench.folder))
            process.wait()
        if not process.returncode:
            return False, ""
        printed.seek(0)
        return False, f"exit code {process.returncode}: {printed.read()[-1500:]}"


def _environment(bench: Bench) -> dict[str, str]:
    """Variables of a part: devices in the vendor tool's order, no network."""
    return {
        **os.environ,
        "PATH": f"{bench.bin}:{os.environ['PATH']}",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "DS_ACCELERATOR": bench.kind,
        MARK: str(bench.folder),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "SAFE_LAUNCH_CONFIG": "",
        "SAFE_LAUNCH_LESSONS": "off",
        "TORCH_EXTENSIONS_DIR": str(bench.folder.parent / "extensions"),
    }


def _lines(path: Path) -> list[dict[str, Any]]:
    """The complete lines that a part has written."""
    if not path.exists():
        return []
    text = path.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
