"""Tries the newest releases: whether all works with them as with those that are tested.

    python tests/versions/upstream.py [--only CHECK]

What it shows is a section of docs/using/versions.md.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parents[1])]

from safe_launch.planning.proven import shipped_sweeps  # noqa: E402
from support.draws import draw  # noqa: E402
from support.stacks import ROOT, Stack  # noqa: E402
from support.their_options import TOOLS, unknown  # noqa: E402
from versions import checks, page, record  # noqa: E402
from versions.checks import Check, DifferenceError  # noqa: E402
from versions.run import install, tried  # noqa: E402
from versions.table import PACKAGES, Combination  # noqa: E402

from benchmarks.sweep.data import LETTERS  # noqa: E402

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
TESTING = (
    *("hypothesis", "import-linter", "jinja2", "matplotlib", "prometheus-client", "pytest"),
    *("pytest-timeout", "pytest-xdist", "shtab"),
)
"""What the repository's own tests need beside the frameworks."""
SAMPLE = 24
"""Cells of the sweep that are run of each library."""
SCRIPTS = ("tests/training/test_written_by_others.py",)
"""Healthy scripts with the parsers, models and engines of public repositories."""


def newest(package: str) -> str:
    """The version that pip would install.

    Raises:
        CalledProcessError: the index doesn't answer.
    """
    command = [sys.executable, "-m", "pip", "index", "versions", package]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.split("(", 1)[1].partition(")")[0]


def options(stack: Stack, _folder: Path) -> str:
    """Each option of torchrun, deepspeed and accelerate is known."""
    new = [f"{tool} {one}" for tool in (*TOOLS, "accelerate") for one in unknown(stack, tool)]
    if new:
        raise DifferenceError(f"unknown: {', '.join(new)}")
    return ""


def sweep(stack: Stack, folder: Path) -> str:
    """A sample of the sweep's cells: the results of the newest version that was measured."""
    changed, count = [], 0
    for library, known in shipped_sweeps().items():
        cells = {key: letters[-1] for key, letters in known.cells.items() if letters[-1] in "=x"}
        sample = sorted(cells, key=draw)[:SAMPLE]
        module = ("python", "-m", "benchmarks.sweep.run", library, "--results", folder)
        done = stack.run(*module, "--cells", *sample, cwd=ROOT)
        if done.returncode:
            raise DifferenceError(checks.last_line(done.stdout + done.stderr))
        (file,) = folder.glob(f"{library}-*.jsonl")
        for line in map(json.loads, file.read_text().splitlines()):
            count += 1
            if LETTERS[line["outcome"]] != cells[line["cell"]]:
                changed.append(f"{line['cell']} is {line['outcome']}")
    if changed:
        raise DifferenceError("; ".join(changed))
    return f"{count} cells"


def scripts(stack: Stack, folder: Path) -> str:
    """Healthy scripts written by others train as they are, and nothing is said of them."""
    pytest = ("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={folder}/tmp")
    done = stack.run(*pytest, *SCRIPTS, cwd=ROOT)
    last = done.stdout.strip().rpartition("\n")[2]
    if done.returncode:
        failed = re.findall(r"^FAILED \S+::(\S+)", done.stdout, re.MULTILINE)
        raise DifferenceError(", ".join(failed) or checks.last_line(done.stdout + done.stderr))
    return last.partition(" in ")[0]


CHECKS: Mapping[str, Check] = {
    **checks.CHECKS,
    "options": options,
    "sweep": sweep,
    "scripts": scripts,
}


def main() -> None:
    """Does what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=CHECKS, help="one check; nothing is recorded")
    only = parser.parse_args().only
    pinned = (*(f"{name}=={newest(name)}" for name in PACKAGES), "trl", "datasets", *TESTING)
    stack = install(Combination(page.NEWEST, PYTHON, pinned), sys.executable)
    found = tried(stack, {only: CHECKS[only]} if only else CHECKS)
    if not only:
        record.keep(found)
        page.write()


if __name__ == "__main__":
    main()
